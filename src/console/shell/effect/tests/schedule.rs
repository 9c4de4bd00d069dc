//! The schedule: a service manager that answers, one that hangs, and changes of pauses.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::unattended::schedule::{ScheduleAction, ScheduleChange, ScheduleOverview};

/// A timer of a config, as `schedule install` writes it.
fn write_timer(root: &Path, config: &Path) {
    let directory = root.join("units");
    std::fs::create_dir(&directory).unwrap();
    let units = crate::unattended::schedule::render_units(crate::unattended::schedule::UnitSetup {
        config: &config::load(config, &test_env(root)).unwrap(),
        program: Path::new("/usr/bin/memory-shepherd"),
        scope: UnitScope::User,
        user_sandbox: &crate::unattended::schedule::UserSandbox::Namespaces,
    });
    for unit in units.unwrap() {
        std::fs::write(directory.join(unit.name), unit.text).unwrap();
    }
    std::fs::write(root.join("running"), "").unwrap();
}

/// Writes the program that is asked instead of `systemctl`.
fn write_systemctl(root: &Path, script: &str) {
    let path = root.join("systemctl");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// A console on a fleet with timers of the user.
struct ScheduledFleet {
    root: tempfile::TempDir,
    runner: EffectRunner,
    inbox: Receiver<Msg>,
}

impl ScheduledFleet {
    fn new(script: &str) -> ScheduledFleet {
        let root = tempfile::tempdir().unwrap();
        let engine = engine_with_memory(root.path(), BASELINE);
        write_timer(root.path(), &engine.config().path.clone());
        write_systemctl(root.path(), script);
        let factory = Arc::new(|_| unreachable!("the config does not change"));
        let (runner, inbox) = start_runner(root.path(), engine, factory);
        ScheduledFleet {
            root,
            runner,
            inbox,
        }
    }

    fn wait_for<T>(&self, mut find: impl FnMut(Msg) -> Option<T>) -> T {
        loop {
            let msg = self.inbox.recv_timeout(WAIT_TIMEOUT).unwrap();
            if let Some(found) = find(msg) {
                return found;
            }
        }
    }

    fn load(&mut self, number: u64) -> Box<ScheduleOverview> {
        self.runner.execute(Effect::LoadSchedule(number));
        self.wait_for(|msg| match msg {
            Msg::ScheduleLoaded(found, overview) if found == number => Some(overview.unwrap()),
            _ => None,
        })
    }

    fn change(&mut self, action: ScheduleAction) {
        let change = ScheduleChange {
            agent: None,
            action,
        };
        self.runner.execute(Effect::ChangeSchedule(change));
        let outcome = self.wait_for(|msg| match msg {
            Msg::ScheduleChanged(_, outcome) => Some(outcome),
            _ => None,
        });
        outcome.unwrap();
    }
}

#[test]
fn systemctl_and_pauses_make_the_schedule() {
    let mut fleet = ScheduledFleet::new(
        "echo \"$@\" >> \"$0.calls\"\n\
         printf 'Id=memory-shepherd.timer\\nActiveState=active\\nUnitFileState=enabled\\n'\n\
         printf 'NextElapseUSecRealtime=Mon 2126-02-04 03:00:00 UTC\\nLastTriggerUSec=n/a\\n'",
    );
    fleet.change(ScheduleAction::Pause);
    let overview = fleet.load(1);
    let manager = &overview.managers[0];
    assert!(manager.is_running && manager.unknown_because.is_none());
    let timer = manager
        .timers
        .iter()
        .find(|timer| timer.installed.name == "memory-shepherd.timer")
        .unwrap();
    let group = timer.group.as_ref().unwrap();
    assert_eq!(group.agents, ["a", "b"]);
    assert_eq!(group.pause.as_ref().unwrap().by, "tester");
    assert!(group.next.unwrap() > fleet.runner.engine.clock().now());
    assert!(group.after_next > group.next);
    let calls = std::fs::read_to_string(fleet.root.path().join("systemctl.calls")).unwrap();
    assert_eq!(calls.lines().count(), 1, "{calls}");
    fleet.change(ScheduleAction::Resume);
    let overview = fleet.load(2);
    let timers = overview.managers[0].timers.iter();
    let mut groups = timers.filter_map(|timer| timer.group.as_ref());
    assert!(groups.all(|group| group.pause.is_none()));
}

#[test]
fn hanging_systemctl_keeps_nothing_waiting() {
    let mut fleet = ScheduledFleet::new("exec tail -f /dev/null");
    fleet.runner.schedule_access.managers = fleet
        .runner
        .schedule_access
        .managers
        .clone()
        .with_timeout(Duration::from_millis(300));
    fleet.runner.execute(Effect::LoadSchedule(1));
    // What else the console does goes on before the answer.
    let mut has_changed = false;
    let change = ScheduleChange {
        agent: None,
        action: ScheduleAction::Pause,
    };
    fleet.runner.execute(Effect::ChangeSchedule(change));
    let overview = fleet.wait_for(|msg| match msg {
        Msg::ScheduleChanged(..) => {
            has_changed = true;
            None
        }
        Msg::ScheduleLoaded(1, overview) => Some(overview.unwrap()),
        _ => None,
    });
    assert!(has_changed);
    let why = overview.managers[0].unknown_because.as_ref().unwrap();
    assert!(why.contains("has not ended within"), "{why}");
}
