//! An open memory of several files: its files, read through its layout.

use std::cmp::Reverse;
use std::path::Path;

use chrono::{DateTime, FixedOffset};

use crate::base::error::{Error, ErrorKind, Result};
use crate::config::Agent;
use crate::engine::context::Context;
use crate::layouts::{
    Collection, HealthFinding, Layout, MemoryFiles, SearchAnswer, SearchableFile,
};

/// An open memory of several files.
pub struct LayoutMemory {
    /// Its layout.
    pub layout: &'static dyn Layout,
    /// Its files.
    pub files: MemoryFiles,
}

impl Context {
    /// Opens the memory of several files of an agent. Nothing is read yet.
    ///
    /// # Errors
    /// [`ErrorKind::User`]: the agent has no such memory.
    pub(in crate::engine) fn open_layout_memory(&self, agent: &Agent) -> Result<LayoutMemory> {
        let Some(layout) = &agent.layout else {
            let message = format!("{} has no memory with a layout", agent.name);
            let hint = format!("set layout and memory_dir in [{}]", agent.name);
            return Err(Error::new(ErrorKind::User, message).with_hint(hint));
        };
        let transport = self.transport_for(agent);
        Ok(LayoutMemory {
            layout: self.layouts().find(&layout.name)?,
            files: MemoryFiles::new(transport, &layout.directory),
        })
    }
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

    /// Lists the files whose texts can be searched.
    ///
    /// # Errors
    /// The directory does not exist, or cannot be read.
    pub fn texts(&self) -> Result<Vec<SearchableFile>> {
        self.check_directory()?;
        self.layout.texts(&self.files)
    }

    /// Finds items by words, the best first.
    ///
    /// # Errors
    /// The directory does not exist, or cannot be read.
    pub fn search(&self, query: &str) -> Result<SearchAnswer> {
        self.check_directory()?;
        self.layout.search(&self.files, query)
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
