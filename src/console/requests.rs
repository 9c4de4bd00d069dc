//! Numbers of requests whose replies may be late.

/// Numbers the requests for one thing: only the reply to the last one counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NumberedRequests {
    /// Number of the last request; a reply with a lower number is late.
    pub last_id: u64,
    /// Whether the last request is unanswered.
    pub is_pending: bool,
}

impl NumberedRequests {
    /// Begins a request. Returns its number.
    pub fn begin(&mut self) -> u64 {
        self.last_id += 1;
        self.is_pending = true;
        self.last_id
    }

    /// Whether a reply answers the last request, which ends with it.
    pub fn accept(&mut self, id: u64) -> bool {
        id == self.last_id && std::mem::take(&mut self.is_pending)
    }
}
