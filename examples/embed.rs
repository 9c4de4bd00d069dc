//! Resets one agent and undoes that, with a configuration built in code: the engine without the console
//! and without a config file. `cargo run --example embed`.

#![expect(clippy::print_stdout, reason = "an example prints what it does")]

use std::error::Error;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use memory_shepherd::base::clock::SystemClock;
use memory_shepherd::config::{Agent, Config, GeneralSettings};
use memory_shepherd::engine::{
    Engine, EngineSetup, Plan, RunReport, Trigger, UndoMode, UndoTarget,
};
use memory_shepherd::transport::SingleTransport;
use memory_shepherd::transport::local::LocalTransport;

const BASELINE: &str = "# Scout\n\nNever delete a file that you did not write.\n\n---\n";

fn main() -> Result<(), Box<dyn Error>> {
    let home = tempfile::tempdir()?;
    let path = |name: &str| home.path().join(name);
    fs::create_dir_all(path("baselines"))?;
    fs::write(path("baselines/scout.md"), BASELINE)?;
    fs::write(
        path("MEMORY.md"),
        format!("{BASELINE}- the build is slow\n"),
    )?;

    let mut general = GeneralSettings::new(path("baselines"), path("archives"));
    general.min_baseline_size = 0;
    let scout = Agent::new(&general, "scout", path("MEMORY.md"), "scout.md");
    let clock = Arc::new(SystemClock);
    let engine = Engine::new(EngineSetup {
        config: Config::new(general, vec![scout])?,
        transports: Arc::new(SingleTransport(Arc::new(LocalTransport::new(
            clock.clone(),
        )))),
        clock,
        user: "embedder".to_string(),
        trigger: Trigger::Cli,
        archive_group: None,
        layouts: Default::default(),
    });

    let agents = ["scout".to_string()];
    let reset = apply(&engine, &engine.planner().plan_reset(&agents, false)?);
    for entry in reset.results.iter().flat_map(|result| &result.entries) {
        println!("archived in {}:", entry.path.display());
        println!(
            "{}",
            String::from_utf8_lossy(&engine.entries().read_entry(entry, 4096)?)
        );
    }
    assert_eq!(fs::read_to_string(path("MEMORY.md"))?, BASELINE);

    let undo = engine
        .planner()
        .plan_undo(&UndoTarget::Run(reset.run), UndoMode::Refuse, false)?;
    apply(&engine, &undo);
    println!(
        "the memory again:\n{}",
        fs::read_to_string(path("MEMORY.md"))?
    );
    Ok(())
}

/// Applies a plan as it was made, and prints what happened to each agent.
fn apply(engine: &Engine, plan: &Plan) -> RunReport {
    let report = engine
        .runs()
        .apply_plan(plan, true, &AtomicBool::new(false), &mut |_| {});
    for result in &report.results {
        println!("run {}: {}: {:?}", report.run, result.agent, result.outcome);
    }
    report
}
