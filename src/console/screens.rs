//! The screens. A screen is a directory: `state` is what it knows, `update` what it does and
//! `view` what it shows.

pub mod agent {
    //! One agent: its texts, its facts and its history.
    pub mod state;
    pub(in crate::console) mod update;
    pub(in crate::console) mod view;
}

pub mod fleet {
    //! All agents.
    pub(in crate::console) mod view;
}

pub mod hosts {
    //! The hosts and their connections.
    pub mod state;
    pub(in crate::console) mod update;
    pub(in crate::console) mod view;
}

pub mod log {
    //! Runs of the ledger, messages of the session and background jobs.
    pub mod state;
    pub(in crate::console) mod view;
}

pub mod reset {
    //! A plan, its run and the result.
    pub mod state;
    pub(in crate::console) mod update;
    pub(in crate::console) mod view;
}
