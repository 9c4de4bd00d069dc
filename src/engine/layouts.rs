//! The memories of several files that agents have beside the one that is reset.

use std::cmp::Reverse;
use std::path::Path;
use std::sync::Arc;

use chrono::{DateTime, FixedOffset};

use crate::base::error::{Error, ErrorKind, Result};
use crate::engine::context::Context;
use crate::engine::runs::Planner;
use crate::engine::runs::plan::Plan;
use crate::layouts::{
    Collection, HealthFinding, Layout, MemoryFiles, MemoryItem, OperationRequest,
};

/// Opens the memories of several files, and plans operations on them.
pub struct LayoutMemories {
    context: Arc<Context>,
    planner: Arc<Planner>,
}

/// An open memory of several files.
pub struct LayoutMemory {
    /// Its layout.
    pub layout: &'static dyn Layout,
    /// Its files.
    pub files: MemoryFiles,
}

/// The result of a search.
#[derive(Debug, Default)]
pub struct FoundItems {
    /// The items with the text.
    pub items: Vec<MemoryItem>,
    /// Why others could not be read.
    pub unread: Vec<Error>,
}

impl LayoutMemory {
    /// Returns the collections, in the order in which they are shown.
    ///
    /// # Errors
    /// The directory does not exist, or cannot be read.
    pub fn collections(&self) -> Result<Vec<Collection>> {
        self.check_directory()?;
        self.layout.collections(&self.files)
    }

    /// Returns the findings of its checks, the worst first.
    ///
    /// # Errors
    /// The directory does not exist, or cannot be read.
    pub fn health(&self, now: DateTime<FixedOffset>) -> Result<Vec<HealthFinding>> {
        self.check_directory()?;
        let mut findings = self.layout.health(&self.files, now)?;
        findings.sort_by_key(|finding| Reverse(finding.severity));
        Ok(findings)
    }

    /// Finds the items that have a text in their title or their content; letters match in either
    /// case.
    ///
    /// # Errors
    /// The directory does not exist, or cannot be read.
    pub fn search(&self, text: &str) -> Result<FoundItems> {
        let wanted = text.to_lowercase();
        let mut found = FoundItems::default();
        for collection in self.collections()? {
            for page in self.layout.items(&self.files, &collection.id)? {
                for item in page? {
                    if item.title.to_lowercase().contains(&wanted) {
                        found.items.push(item);
                        continue;
                    }
                    match self.layout.read(&self.files, &item.id) {
                        Ok(content) => {
                            let text = String::from_utf8_lossy(&content.bytes).to_lowercase();
                            found.items.extend(text.contains(&wanted).then_some(item));
                        }
                        Err(error) => found.unread.push(error.with_context(&item.id)),
                    }
                }
            }
        }
        Ok(found)
    }

    /// A layout takes a directory that does not exist for an empty one.
    fn check_directory(&self) -> Result<()> {
        if self.files.list(Path::new(""))?.is_some() {
            return Ok(());
        }
        let message = format!("memory_dir does not exist: {}", self.files.root().display());
        Err(Error::new(ErrorKind::Host, message))
    }
}

impl LayoutMemories {
    pub(super) fn new(context: &Arc<Context>, planner: &Arc<Planner>) -> LayoutMemories {
        LayoutMemories {
            context: Arc::clone(context),
            planner: Arc::clone(planner),
        }
    }

    /// Opens the memory of an agent. Nothing is read yet.
    ///
    /// # Errors
    /// [`ErrorKind::User`]: the agent is not configured, or has no such memory.
    pub fn open(&self, agent: &str) -> Result<LayoutMemory> {
        let agent = self.context.agent(agent)?;
        let Some(layout) = &agent.layout else {
            let message = format!("{} has no memory with a layout", agent.name);
            let hint = format!("set layout and memory_dir in [{}]", agent.name);
            return Err(Error::new(ErrorKind::User, message).with_hint(hint));
        };
        let transport = self.context.transport_for(agent);
        Ok(LayoutMemory {
            layout: self.context.layouts().find(&layout.name)?,
            files: MemoryFiles::new(transport, &layout.directory),
        })
    }

    /// Plans an operation on the memory of an agent.
    ///
    /// # Errors
    /// The agent has no such memory, its files cannot be read, or the operation is not possible.
    pub fn plan(&self, agent: &str, request: &OperationRequest, is_unlocked: bool) -> Result<Plan> {
        let LayoutMemory { layout, files } = self.open(agent)?;
        request.check(layout)?;
        let edits = layout.plan(&files, request)?;
        self.planner
            .plan_edit(agent, files.root(), &edits, is_unlocked)
    }
}
