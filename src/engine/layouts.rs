//! The memories of several files that agents have beside the one that is reset.

use std::cmp::Reverse;
use std::sync::Arc;

use chrono::{DateTime, FixedOffset};

use crate::base::error::{Error, ErrorKind, Result};
use crate::engine::context::Context;
use crate::engine::runs::Planner;
use crate::engine::runs::plan::Plan;
use crate::layouts::{HealthFinding, Layout, MemoryFiles, MemoryItem, OperationRequest};

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

impl LayoutMemory {
    /// Returns the findings of its checks, the worst first.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn health(&self, now: DateTime<FixedOffset>) -> Result<Vec<HealthFinding>> {
        let mut findings = self.layout.health(&self.files, now)?;
        findings.sort_by_key(|finding| Reverse(finding.severity));
        Ok(findings)
    }

    /// Returns the items that have a text in their title or their content; letters match in either
    /// case.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn search(&self, text: &str) -> Result<Vec<MemoryItem>> {
        let wanted = text.to_lowercase();
        let mut found = Vec::new();
        for collection in self.layout.collections(&self.files)? {
            for page in self.layout.items(&self.files, &collection.id)? {
                for item in page? {
                    let is_found = item.title.to_lowercase().contains(&wanted) || {
                        let content = self.layout.read(&self.files, &item.id)?;
                        let text = String::from_utf8_lossy(&content.bytes).to_lowercase();
                        text.contains(&wanted)
                    };
                    found.extend(is_found.then_some(item));
                }
            }
        }
        Ok(found)
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
            let hint = "set layout and memory_dir in its section";
            return Err(Error::new(ErrorKind::User, message).with_hint(hint));
        };
        let transport = self.context.transport_for(&agent.location);
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
