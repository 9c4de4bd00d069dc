//! What the hosts screen does: follows the status of hosts, retries one, shows its agents.

use crate::console::age::format_age;
use crate::console::command::{Command, require};
use crate::console::message::Effect;
use crate::console::model::Model;
use crate::console::screen::Screen;
use crate::console::screens::fleet::update::set_filter;
use crate::console::screens::hosts::state::{NO_HOSTS_REASON, problem_of};
use crate::engine::{HostStatus, Reachability};

/// Applies the status of a host. Reports that it went away or came back once, and not for each
/// attempt.
pub fn handle_host_status(model: &mut Model, status: HostStatus) {
    // It may be a host of the previous config.
    if !status
        .agents
        .iter()
        .any(|name| model.find_row(name).is_some())
    {
        return;
    }
    let name = status.host.authority();
    let asks = status.connection.pending_prompt.is_some();
    let barred = status.connection.is_blocked;
    let reach = status.connection.reachability;
    let reason = status.connection.short_reason().unwrap_or_default();
    let was_connected = model.hosts.was_connected(&status.host);
    let old = model.hosts.apply_status(status.clone());
    model.is_dirty |= old.as_ref() != Some(&status);
    if asks {
        model.hosts.late_logins.remove(&name);
        // Its question has been reported.
        return;
    }
    let answered = !status.connection.is_connecting && model.hosts.answered_logins.remove(&name);
    let before = old.map_or(Reachability::Unknown, |old| old.connection.reachability);
    if reach == Reachability::Connected {
        model.hosts.late_logins.remove(&name);
    }
    if answered && reach == Reachability::Connected {
        model.report_info(format!("{name} is up"));
        return;
    }
    if before == reach && !answered {
        return;
    }
    let more = match model.screen {
        Screen::Hosts => String::new(),
        _ => format!(". {} shows more", model.key_hint(Command::GoHosts)),
    };
    match reach {
        // The refused question has been reported.
        Reachability::Unreachable if barred && !answered => {}
        // The late answer has been reported.
        Reachability::Unreachable if model.hosts.late_logins.remove(&name) => {}
        Reachability::HostKeyMismatch => model.report_error(format!(
            "{name}: host key changed; nothing is read or sent there{more}"
        )),
        // The cause may be the setup of this machine.
        Reachability::Refused => model.report_error(format!("{name} cannot be used: {reason}")),
        Reachability::Unreachable if before == Reachability::Connected => {
            model.report_warning(format!("{name} went away: {reason}"));
        }
        Reachability::Unreachable => {
            model.report_warning(format!("{name} cannot be reached: {reason}"))
        }
        Reachability::Connected if before.is_failure() => {
            let what = if was_connected { "back" } else { "up" };
            model.report_info(format!("{name} is {what}"))
        }
        Reachability::Connected | Reachability::Unknown => {}
    }
}

/// Returns the ages on the screen.
pub fn visible_ages(model: &Model) -> Vec<String> {
    let now = model.now.local_time;
    let keymap = &model.preferences.keymap;
    let of = |status: &HostStatus| {
        let since = status.connection.since.map(|since| format_age(now, since));
        format!("{since:?} {:?}", problem_of(status, now, keymap))
    };
    model.hosts.sorted_statuses().into_iter().map(of).collect()
}

/// Goes to the hosts and requests the ssh settings of the one under the cursor.
pub fn open(model: &mut Model) -> Vec<Effect> {
    model.go_to_screen(Screen::Hosts);
    request_settings(model)
}

/// Requests the ssh settings of the host under the cursor, if they are unknown.
pub fn request_settings(model: &Model) -> Vec<Effect> {
    let host = model
        .hosts
        .current_status()
        .map(|status| status.host.clone());
    let unknown = host.filter(|host| !model.hosts.settings.contains_key(host));
    unknown.map(Effect::LoadHostSettings).into_iter().collect()
}

/// Moves the cursor by rows and requests the ssh settings of its host.
pub fn move_cursor(model: &mut Model, by: isize) -> Vec<Effect> {
    model.hosts.list = model
        .hosts
        .list
        .stepped(by, &model.hosts.sorted_statuses()[..]);
    request_settings(model)
}

/// Shows the agents of the host under the cursor.
pub fn show_host_agents(model: &mut Model) {
    let Some(status) = model.hosts.current_status() else {
        return model.show_hint(NO_HOSTS_REASON);
    };
    let host = &status.host;
    // The other form matches every host whose name begins so.
    let filter = if model.hosts.begins_other_name(host) {
        format!("host:={}", host.authority())
    } else {
        format!("host:{}", host.name)
    };
    let before = model.fleet.filter.clone();
    set_filter(model, filter);
    model.return_point.filter_before_host = Some(before);
    model.go_to_screen(Screen::Fleet);
}

/// Checks that a host is under the cursor.
pub fn check_host(model: &Model) -> Result<(), String> {
    require(model.hosts.current_status().is_some(), NO_HOSTS_REASON)
}

/// Retries the host under the cursor at once.
pub fn retry_host(model: &mut Model) -> Vec<Effect> {
    let Some(status) = model.hosts.current_status().cloned() else {
        return Vec::new();
    };
    model.report_info(format!("trying {} now", status.host.authority()));
    // The host may ask a refused question again.
    let agents = status.agents;
    vec![
        Effect::AllowQuestions(agents.clone()),
        Effect::ReadAgents(agents),
    ]
}
