//! Who sees which entries: the filter of an agent, and that of operators, who see all.

use serde::Serialize;

use super::entry::{Entry, Kind, Scope};

/// Which entries a command is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The agent whose view it is; none is the operator's.
    pub agent_id: Option<String>,
    /// The run whose entries are seen, too.
    pub run_id: Option<String>,
    /// Only these scopes; empty: those that the view has.
    pub scopes: Vec<Scope>,
    /// Only these kinds; empty: all.
    pub kinds: Vec<Kind>,
    /// Only entries with one of these tags; empty: all.
    pub tags: Vec<String>,
}

/// Whose view it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ViewKind {
    /// An agent's.
    Agent,
    /// The operator's.
    Operator,
}

impl View {
    /// Whose view it is.
    pub fn kind(&self) -> ViewKind {
        match self.agent_id {
            Some(_) => ViewKind::Agent,
            None => ViewKind::Operator,
        }
    }

    /// The scopes that are looked through.
    pub fn effective_scopes(&self) -> Vec<Scope> {
        if !self.scopes.is_empty() {
            return self.scopes.clone();
        }
        match (&self.agent_id, &self.run_id) {
            (Some(_), None) => vec![Scope::Global, Scope::Agent],
            _ => Scope::ALL.to_vec(),
        }
    }

    /// Whether the view has an entry.
    pub fn has(&self, entry: &Entry) -> bool {
        let is_own = |id: &Option<String>| self.agent_id.is_none() || *id == self.agent_id;
        let is_in_run = match (&self.run_id, self.kind()) {
            (Some(run), _) => entry.run_id.as_ref() == Some(run),
            (None, kind) => kind == ViewKind::Operator,
        };
        let is_visible = match entry.scope {
            Scope::Global => true,
            Scope::Agent => is_own(&entry.agent_id),
            Scope::Run => is_own(&entry.agent_id) && is_in_run,
        };
        is_visible
            && self.effective_scopes().contains(&entry.scope)
            && (self.kinds.is_empty() || self.kinds.contains(&entry.kind))
            && (self.tags.is_empty() || self.has_tag_of(entry))
    }

    fn has_tag_of(&self, entry: &Entry) -> bool {
        let is_wanted = |tag: &String| {
            let tag = tag.to_lowercase();
            self.tags.iter().any(|wanted| wanted.to_lowercase() == tag)
        };
        entry.tags.iter().any(is_wanted)
    }

    /// Returns the entries that the view has, the one changed last first; equal ones keep their order.
    pub fn newest_first<'e, T>(
        &self,
        entries: impl Iterator<Item = (T, &'e Entry)>,
    ) -> Vec<(T, &'e Entry)> {
        let mut seen: Vec<(T, &Entry)> = entries.filter(|(_, entry)| self.has(entry)).collect();
        seen.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.recency()));
        seen
    }
}
