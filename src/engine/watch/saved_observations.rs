//! The observations of the last session, which the first screen of the next one shows until the fleet
//! is read.

use crate::base::error::Result;
use crate::engine::Observation;
use crate::engine::watch::Observer;
use crate::store::observations::SavedObservations;

impl Observer {
    /// Saves observations for the next session.
    ///
    /// # Errors
    /// The archive cannot be written.
    pub fn save_observations<'o>(
        &self,
        seen: impl IntoIterator<Item = &'o Observation>,
    ) -> Result<()> {
        self.context
            .observations()
            .save_fleet(&mut seen.into_iter())
    }

    /// Loads the observations of the last session. The scan of the texts that they are about is not
    /// repeated, unless another user may have written them.
    pub fn load_observations(&self) -> SavedObservations {
        let saved = self.context.observations().load_fleet();
        if saved.is_own {
            self.content_cache.keep_findings(&saved.observations);
        }
        saved.observations
    }
}
