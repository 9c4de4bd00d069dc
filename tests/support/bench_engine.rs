//! The engine on a fleet of a benchmark, in this process.

use std::sync::Arc;

use memory_shepherd::base::clock::Clock;
use memory_shepherd::config::{self, ConfigEnvironment};
use memory_shepherd::engine::{Engine, EngineSetup, Trigger};
use memory_shepherd::transport::SingleTransport;
use memory_shepherd::transport::local::LocalTransport;

use crate::bench_fleet::Fleet;

pub fn engine_of(fleet: &Fleet, clock: Arc<dyn Clock>) -> Engine {
    let environment = ConfigEnvironment {
        uid: rustix::process::getuid().as_raw(),
        ..ConfigEnvironment::bare(&fleet.root)
    };
    let config = config::load(&fleet.config_path(), &environment);
    Engine::new(EngineSetup {
        config: config.unwrap_or_else(|problems| panic!("{problems}")),
        transports: Arc::new(SingleTransport(Arc::new(LocalTransport::new(Arc::clone(
            &clock,
        ))))),
        clock,
        user: "root".to_string(),
        trigger: Trigger::Timer,
        archive_group: None,
        layouts: Default::default(),
    })
}
