//! Reads a changed config file once it has settled, and creates an engine for it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::digest::Digest;
use crate::base::durable;
use crate::config::{self, Config, ConfigEnvironment, ConfigErrors};
use crate::console::message::Msg;
use crate::engine::Engine;

/// Time that a file must stay unchanged before it is read.
const SETTLE_TIME: Duration = Duration::from_millis(50);

/// Maximum number of waits of [`SETTLE_TIME`].
const MAX_SETTLE_WAITS: usize = 40;

/// Creates an engine for a changed config, or returns what the config names and this machine lacks.
pub type EngineFactory = Arc<dyn Fn(Config) -> Result<Engine, ConfigErrors> + Send + Sync>;

/// Reads a changed config.
#[derive(Clone)]
pub(super) struct ConfigReloader {
    env: ConfigEnvironment,
    engine_factory: EngineFactory,
    /// Digest of the config file at its last read.
    known_digest: Arc<Mutex<Option<Digest>>>,
}

impl ConfigReloader {
    pub(super) fn new(env: ConfigEnvironment, engine_factory: EngineFactory) -> ConfigReloader {
        ConfigReloader {
            env,
            engine_factory,
            known_digest: Arc::default(),
        }
    }

    /// Returns the absolute path of a file that the operator named; `~` is the home directory.
    pub(super) fn resolve(&self, path: &Path) -> PathBuf {
        self.env.resolve(path)
    }

    /// Reads the config file of an engine once it has settled. Returns the new engine or the errors
    /// of the config; none if the file is the same as at the last read.
    pub(super) fn reload(&self, engine: &Engine) -> Option<Msg> {
        let _span = tracing::debug_span!("reload config").entered();
        let path = &engine.config().path;
        let digest = wait_for_settled_digest(engine.clock(), path);
        let mut known_digest = self
            .known_digest
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if known_digest.replace(digest) == Some(digest) {
            return None;
        }
        let mut config = match config::reload(path, &self.env) {
            Ok(config) => config,
            Err(problems) => return Some(Msg::ConfigInvalid(problems.0)),
        };
        config.invocation = engine.config().invocation.clone();
        // Creating the engine may look up a group, which may be slow.
        match (self.engine_factory)(config) {
            Ok(engine) => Some(Msg::ConfigReloaded(Arc::new(engine))),
            Err(problems) => {
                // The same file is valid once the machine has what it names.
                *known_digest = None;
                Some(Msg::ConfigInvalid(problems.0))
            }
        }
    }
}

/// Returns the digest of a file once it stays the same for [`SETTLE_TIME`], or after
/// [`MAX_SETTLE_WAITS`]: many programs truncate a file before they write it, and an empty config is
/// valid. For an unreadable file, returns the digest of the error.
pub(super) fn wait_for_settled_digest(clock: &dyn Clock, path: &Path) -> Digest {
    let read = || match durable::read_regular_file(path, config::MAX_CONFIG_BYTES) {
        Ok(bytes) => Digest::of(&bytes),
        Err(error) => Digest::of(error.to_string().as_bytes()),
    };
    let mut digest = read();
    for _ in 0..MAX_SETTLE_WAITS {
        clock.sleep(SETTLE_TIME);
        let next = read();
        if next == digest {
            break;
        }
        digest = next;
    }
    digest
}
