//! How hosts stand, and what is done on their screen.

use super::Effect;
use super::act::{filter_by, go};
use crate::console::command::{Command, NO_HOSTS};
use crate::console::model::{MessageLevel, Model, Screen, age, trouble};
use crate::engine::{HostStatus, Reachability};

/// A host stands like this now. It is said when one goes or comes back, once, and
/// not for each try.
pub(super) fn stands(model: &mut Model, status: HostStatus) {
    // It may still be one of the config before.
    if !status.agents.iter().any(|name| model.row(name).is_some()) {
        return;
    }
    let name = status.host.login();
    let asks = status.contact.asks.is_some();
    let barred = status.contact.barred;
    let reach = status.contact.reach;
    let reason = status.contact.reason().unwrap_or_default();
    let old = model.hosts.take(status.clone());
    model.dirty |= old.as_ref() != Some(&status);
    if asks {
        model.hosts.late.remove(&name);
        // That was said by its question.
        return;
    }
    let answered = !status.contact.trying && model.hosts.answered.remove(&name);
    let before = old.map_or(Reachability::Unknown, |old| old.contact.reach);
    if answered && reach == Reachability::Up {
        model.say(MessageLevel::Info, format!("{name} is up"));
        return;
    }
    if before == reach && !answered {
        return;
    }
    match reach {
        // It was said when it got no answer.
        Reachability::Away if barred && !answered => {}
        // It hung up, and that was said, too.
        Reachability::Away if model.hosts.late.remove(&name) => {}
        Reachability::HostKey => model.say(
            MessageLevel::Error,
            format!(
                "{name} shows another host key; nothing is read or sent there. {} tells more",
                model.key(Command::GoHosts)
            ),
        ),
        // It may be our own setup that keeps us out.
        Reachability::Refused => model.say(
            MessageLevel::Error,
            format!("{name} cannot be used: {reason}"),
        ),
        Reachability::Away if before == Reachability::Up => {
            model.say(MessageLevel::Warn, format!("{name} went away: {reason}"));
        }
        Reachability::Away => model.say(
            MessageLevel::Warn,
            format!("{name} cannot be reached: {reason}"),
        ),
        Reachability::Up if before.is_trouble() => {
            model.say(MessageLevel::Info, format!("{name} is back"))
        }
        Reachability::Up | Reachability::Unknown => {}
    }
}

/// The ages on the screen of hosts.
pub(super) fn ages(model: &Model) -> Vec<String> {
    let now = model.now.wall;
    let keymap = &model.preferences.keymap;
    let of = |status: &HostStatus| {
        let since = status.contact.since.map(|since| age(now, since));
        format!("{since:?} {:?}", trouble(status, now, keymap))
    };
    model.hosts.order().into_iter().map(of).collect()
}

/// The screen of hosts, with what ssh makes of the one under the cursor.
pub(super) fn open(model: &mut Model) -> Vec<Effect> {
    go(model, Screen::Hosts);
    settings(model)
}

/// Asks for what is not known of the host under the cursor.
pub(super) fn settings(model: &Model) -> Vec<Effect> {
    let host = model.hosts.current().map(|status| status.host.clone());
    let unknown = host.filter(|host| !model.hosts.settings.contains_key(host));
    unknown.map(Effect::Settings).into_iter().collect()
}

/// Moves the cursor to the host of this place in the order.
pub(super) fn choose(model: &mut Model, place: usize) {
    let host = model.hosts.order().get(place).map(|it| it.host.clone());
    model.hosts.cursor = host.or(model.hosts.cursor.take());
}

/// Shows the agents of the host under the cursor.
pub(super) fn agents(model: &mut Model) -> Vec<Effect> {
    let Some(status) = model.hosts.current() else {
        model.hint(NO_HOSTS);
        return Vec::new();
    };
    let host = &status.host;
    let filter = match model.hosts.is_namesake(host) {
        true => format!("host:={}", host.login()),
        false => format!("host:{}", host.name),
    };
    filter_by(model, filter);
    go(model, Screen::Fleet);
    Vec::new()
}

/// Tries the host under the cursor at once.
pub(super) fn try_now(model: &mut Model) -> Vec<Effect> {
    let Some(status) = model.hosts.current().cloned() else {
        return Vec::new();
    };
    model.say(
        MessageLevel::Info,
        format!("trying {} now", status.host.login()),
    );
    // The host may ask again, if it asked in vain.
    let agents = status.agents;
    vec![Effect::LetAsk(agents.clone()), Effect::Read(agents)]
}
