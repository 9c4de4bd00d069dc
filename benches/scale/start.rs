//! Times from exec to frames, without and with what the last session saw: with it, the first useful
//! frame shows states, and the fleet is whole within the time that `status` takes.

use crate::bench_fleet::millis;
use crate::commands::run;
use crate::measure::median;
use crate::table::Table;
use crate::{keys, local_fleet, new_directory, search_path, shows_agents, start_console};

/// Number of starts.
const ROUNDS: usize = 3;

pub fn measure(table: &mut Table, size: usize) -> Option<()> {
    let directory = new_directory();
    let fleet = local_fleet(&directory, size);
    for (what, rounds) in [("first start", 1), ("next start", ROUNDS)] {
        let mut times = [const { Vec::new() }; 4];
        for _ in 0..rounds {
            let mut console = start_console(&fleet, &search_path());
            let began = console.began;
            let rows = console.until("agents", shows_agents);
            let known = console.until("a known agent", |screen| {
                // A state that was read now or in the last session.
                let text = screen.contents();
                ["DRIFTED", "SCRATCH", "CLEAN"]
                    .iter()
                    .any(|it| text.contains(it))
            });
            let whole = keys::wait_until_live(&mut console);
            console.drain(std::time::Duration::from_secs(2));
            let quit = std::time::Instant::now();
            console.quit(b"q");
            for (times, time) in times.iter_mut().zip([
                millis(rows - began),
                millis(known.max(rows) - began),
                millis(whole.max(known) - began),
                millis(quit.elapsed()),
            ]) {
                times.push(time);
            }
        }
        let [rows, known, whole, quit] = times.map(median);
        let is_next = rounds == ROUNDS;
        let budget = Some(150.0);
        let status = is_next.then(|| millis(run(&fleet, &search_path(), &["status"]).wall).round());
        table.add(&format!("{what}: rows"), "ms", size, rows, budget);
        let states_budget = budget.filter(|_| is_next);
        table.add(&format!("{what}: states"), "ms", size, known, states_budget);
        table.add(&format!("{what}: whole fleet"), "ms", size, whole, status);
        table.add(&format!("{what}: exit"), "ms", size, quit, None);
    }
    Some(())
}
