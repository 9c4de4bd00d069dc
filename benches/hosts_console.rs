//! Costs of a thousand agents on fifty hosts for the console, when a round trip to each host takes
//! 300 ms and one host never answers:
//!
//! - the time until all agents of the other hosts are seen, in round trips;
//! - until then and for ten more seconds: the delay from a key to its frame, drawn into a buffer;
//! - resident memory, and threads.
//!
//! `cargo bench --bench hosts_console`. The hosts are in this process, so that only the console is
//! measured.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a harness may stop and speak"
)]

#[path = "../tests/support/fake_transport.rs"]
mod fake_transport;

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use memory_shepherd::base::clock::{Clock, SystemClock};
use memory_shepherd::config::{self, ConfigEnvironment, SshHost};
use memory_shepherd::console::keys::key::{Key, KeyCode};
use memory_shepherd::console::message::Msg;
use memory_shepherd::console::model::Moment;
use memory_shepherd::console::theme::Theme;
use memory_shepherd::console::update::update;
use memory_shepherd::console::{initial_model, view};
use memory_shepherd::engine::{Engine, EngineSetup, FleetEvent, FleetWatcher, Trigger};
use memory_shepherd::transport::{Transport, Transports};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use self::fake_transport::FakeTransport;

const HOSTS: usize = 50;
const AGENTS: usize = 20;
const LATENCY: Duration = Duration::from_millis(300);
const SIZE: (u16, u16) = (120, 36);
const BASELINE: &str = "# Rules\n\n- be kind\n- be brief\n\n---\n";

/// Hosts by their names.
struct Hosts(HashMap<String, FakeTransport>);

impl Transports for Hosts {
    fn transport_for(&self, host: Option<&SshHost>) -> Arc<dyn Transport> {
        let host = host.expect("all agents are on hosts");
        Arc::new(self.0[&host.name].clone())
    }
}

/// Returns the fleet's config, and its hosts.
fn fleet(root: &Path) -> (config::Config, HashMap<String, FakeTransport>) {
    fs::create_dir(root.join("baselines")).expect("a directory");
    fs::write(root.join("baselines/shared.md"), BASELINE).expect("a baseline");
    let memory = format!(
        "{BASELINE}{}",
        "- a note of twelve words or so, as agents write them\n".repeat(240)
    );
    let mut text = "[general]\nmin_baseline_size = 10\n".to_string();
    let mut hosts = HashMap::new();
    for number in 0..HOSTS {
        let host = format!("host-{number:02}");
        let fake = FakeTransport::new(Arc::new(SystemClock));
        for directory in ["/", "/agents"] {
            fake.make_directory(directory, 0, 0, 0o755);
        }
        for agent in 0..AGENTS {
            let directory = format!("/agents/{agent}");
            fake.make_directory(&directory, 1000, 1000, 0o755);
            fake.write_file(format!("{directory}/MEMORY.md"), memory.as_bytes());
            write!(
                text,
                "[{host}-agent-{agent:02}]\nremote_host = {host}\n\
                 remote_memory = {directory}/MEMORY.md\nbaseline = shared.md\n"
            )
            .expect("room");
        }
        fake.set_latency(LATENCY);
        hosts.insert(host, fake);
    }
    let path = root.join("fleet.conf");
    fs::write(&path, text).expect("a config");
    let env = ConfigEnvironment {
        uid: 1000,
        ..ConfigEnvironment::bare(root)
    };
    (config::load(&path, &env).expect("a config"), hosts)
}

fn main() {
    let root = tempfile::tempdir().expect("a directory");
    let (config, hosts) = fleet(root.path());
    let (release, released) = bounded::<()>(0);
    hosts["host-00"].set_hook(move |_, _, _| {
        let _ = released.recv();
    });
    let began = SystemClock.instant();
    let moment = || Moment {
        elapsed: began.elapsed(),
        local_time: SystemClock.now(),
    };
    let mut model = initial_model(&config, moment(), SIZE);
    let theme = Theme::built_in("terminal").expect("a theme");
    let mut buffer = Buffer::empty(Rect::new(0, 0, SIZE.0, SIZE.1));
    let engine = Engine::new(EngineSetup {
        config,
        clock: Arc::new(SystemClock),
        transports: Arc::new(Hosts(hosts)),
        user: "bench".to_string(),
        trigger: Trigger::Console,
        archive_group: None,
        layouts: Default::default(),
    });
    let (sender, events) = bounded(64);
    let fleet = FleetWatcher::start(Arc::clone(engine.watch()), sender).expect("a thread");
    let living = (HOSTS - 1) * AGENTS;
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut all = None;
    let mut keys = Vec::new();
    let mut end = began + Duration::from_secs(120);
    let mut next_key = began;
    while Instant::now() < end {
        let wait = next_key.saturating_duration_since(Instant::now());
        if let Ok(event) = events.recv_timeout(wait) {
            match &event {
                FleetEvent::Observed(some) => {
                    seen.extend(some.iter().map(|it| it.agent.clone()));
                }
                FleetEvent::Confirmed { .. } | FleetEvent::HostsChanged(_) => {}
                FleetEvent::ConfigChanged
                | FleetEvent::PausesChanged
                | FleetEvent::StatesRecorded
                | FleetEvent::LedgerChanged
                | FleetEvent::Notice(_) => {
                    continue;
                }
            }
            update(&mut model, moment(), Msg::Fleet(event));
            if all.is_none() && seen.len() == living {
                all = Some(began.elapsed());
                end = Instant::now() + Duration::from_secs(10);
            }
        }
        if next_key <= Instant::now() {
            let down = keys.len() / 20 % 2 == 0;
            let key = Key::from_code(KeyCode::Char(if down { 'j' } else { 'k' }));
            // Earlier messages that are not handled yet delay the key, too.
            let pressed = Instant::now();
            update(&mut model, moment(), Msg::KeysPressed(vec![key]));
            buffer.reset();
            view::draw(&model, &theme, &mut buffer);
            keys.push(pressed.elapsed());
            next_key = pressed + Duration::from_millis(33);
        }
    }
    print_times(all.expect("the others are seen"), keys);
    print_resources();
    drop(release);
    drop(fleet);
}

/// Prints when all agents of live hosts were seen, and how long keys took.
fn print_times(all: Duration, mut keys: Vec<Duration>) {
    let millis = |duration: Duration| duration.as_secs_f64() * 1000.0;
    println!(
        "all live agents seen    {:6.0} ms, {:.1} round trips",
        millis(all),
        all.as_secs_f64() / LATENCY.as_secs_f64()
    );
    keys.sort();
    println!(
        "key to frame            {:6.2} ms median, {:.2} ms p99, {:.2} ms at most, {} keys",
        millis(keys[keys.len() / 2]),
        millis(keys[keys.len() * 99 / 100]),
        millis(keys[keys.len() - 1]),
        keys.len()
    );
}

fn print_resources() {
    let status = fs::read_to_string("/proc/self/status").expect("status");
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or("?").trim().to_string()
    };
    println!(
        "resident memory         {}, {} threads",
        of("VmRSS:"),
        of("Threads:")
    );
}
