//! How hosts stand, and what is done on their screen.

use crate::console::command::{Command, NO_HOSTS_REASON};
use crate::console::model::{MessageLevel, Model, Screen, format_age, problem_of};
use crate::console::update::Effect;
use crate::console::update::commands::{go_to_screen, set_filter};
use crate::engine::{HostStatus, Reachability};

/// A host stands like this now. It is said when one goes or comes back, once, and
/// not for each try.
pub(in crate::console) fn handle_host_status(model: &mut Model, status: HostStatus) {
    // It may still be one of the config before.
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
    let old = model.hosts.apply_status(status.clone());
    model.is_dirty |= old.as_ref() != Some(&status);
    if asks {
        model.hosts.late_logins.remove(&name);
        // That was said by its question.
        return;
    }
    let answered = !status.connection.is_connecting && model.hosts.answered_logins.remove(&name);
    let before = old.map_or(Reachability::Unknown, |old| old.connection.reachability);
    if answered && reach == Reachability::Connected {
        model.report(MessageLevel::Info, format!("{name} is up"));
        return;
    }
    if before == reach && !answered {
        return;
    }
    match reach {
        // It was said when it got no answer.
        Reachability::Unreachable if barred && !answered => {}
        // It hung up, and that was said, too.
        Reachability::Unreachable if model.hosts.late_logins.remove(&name) => {}
        Reachability::HostKeyMismatch => model.report(
            MessageLevel::Error,
            format!(
                "{name} shows another host key; nothing is read or sent there. {} tells more",
                model.key_hint(Command::GoHosts)
            ),
        ),
        // It may be our own setup that keeps us out.
        Reachability::Refused => model.report(
            MessageLevel::Error,
            format!("{name} cannot be used: {reason}"),
        ),
        Reachability::Unreachable if before == Reachability::Connected => {
            model.report(MessageLevel::Warn, format!("{name} went away: {reason}"));
        }
        Reachability::Unreachable => model.report(
            MessageLevel::Warn,
            format!("{name} cannot be reached: {reason}"),
        ),
        Reachability::Connected if before.is_failure() => {
            model.report(MessageLevel::Info, format!("{name} is back"))
        }
        Reachability::Connected | Reachability::Unknown => {}
    }
}

/// The ages on the screen of hosts.
pub(in crate::console) fn visible_host_ages(model: &Model) -> Vec<String> {
    let now = model.now.local_time;
    let keymap = &model.preferences.keymap;
    let of = |status: &HostStatus| {
        let since = status.connection.since.map(|since| format_age(now, since));
        format!("{since:?} {:?}", problem_of(status, now, keymap))
    };
    model.hosts.sorted_statuses().into_iter().map(of).collect()
}

/// The screen of hosts, with what ssh makes of the one under the cursor.
pub(in crate::console) fn open_hosts_screen(model: &mut Model) -> Vec<Effect> {
    go_to_screen(model, Screen::Hosts);
    request_settings(model)
}

/// Asks for what is not known of the host under the cursor.
pub(in crate::console) fn request_settings(model: &Model) -> Vec<Effect> {
    let host = model
        .hosts
        .current_status()
        .map(|status| status.host.clone());
    let unknown = host.filter(|host| !model.hosts.settings.contains_key(host));
    unknown.map(Effect::LoadHostSettings).into_iter().collect()
}

/// Moves the cursor to the host of this place in the order.
pub(in crate::console) fn select_host(model: &mut Model, index: usize) {
    let host = model
        .hosts
        .sorted_statuses()
        .get(index)
        .map(|it| it.host.clone());
    model.hosts.cursor_host = host.or(model.hosts.cursor_host.take());
}

/// Shows the agents of the host under the cursor.
pub(in crate::console) fn show_host_agents(model: &mut Model) -> Vec<Effect> {
    let Some(status) = model.hosts.current_status() else {
        model.show_hint(NO_HOSTS_REASON);
        return Vec::new();
    };
    let host = &status.host;
    let filter = match model.hosts.has_namesake(host) {
        true => format!("host:={}", host.authority()),
        false => format!("host:{}", host.name),
    };
    set_filter(model, filter);
    go_to_screen(model, Screen::Fleet);
    Vec::new()
}

/// Tries the host under the cursor at once.
pub(in crate::console) fn retry_host(model: &mut Model) -> Vec<Effect> {
    let Some(status) = model.hosts.current_status().cloned() else {
        return Vec::new();
    };
    model.report(
        MessageLevel::Info,
        format!("trying {} now", status.host.authority()),
    );
    // The host may ask again, if it asked in vain.
    let agents = status.agents;
    vec![
        Effect::AllowQuestions(agents.clone()),
        Effect::ReadAgents(agents),
    ]
}
