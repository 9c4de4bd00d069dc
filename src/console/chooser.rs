//! What help and palette offer, and which of it a few letters choose.

use std::cmp::Reverse;

use super::command::{self, Category, Command, Context};
use super::filter;
use super::model::{AgentRow, Chooser, ChooserItem, Model, Overlay, Sort, Tab, twin};
use super::theme;
use crate::engine::State;

/// One line of a chooser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// What it does.
    pub item: ChooserItem,
    /// Its name.
    pub id: String,
    /// What it does, in words.
    pub title: String,
    /// The command line that does the same, where there is one.
    pub twin: Option<String>,
    /// Its keys, the first ones.
    pub keys: String,
    /// Why it cannot be chosen now.
    pub disabled: Option<String>,
    /// The heading it stands under, in help.
    pub category: Option<Category>,
}

/// What an overlay offers now, in the order in which it is shown.
pub fn choices(model: &Model, overlay: &Overlay) -> Vec<Choice> {
    match overlay {
        Overlay::Help(chooser) => {
            let mut choices: Vec<Choice> = command::offered(model)
                .map(|spec| of_command(model, spec.command))
                .collect();
            choices.sort_by_key(|choice| choice.category);
            let text = |it: &Choice| format!("{} {} {}", it.id, it.keys, it.title);
            choices.retain(|choice| has_words(&text(choice), &chooser.query));
            choices
        }
        Overlay::Palette(chooser) => palette(model, chooser),
        Overlay::Unlock | Overlay::Question(_) | Overlay::Seal(_) => Vec::new(),
    }
}

/// The states that help explains: those that are on the screen below it, as far as
/// they fit what is searched for.
pub fn legend(model: &Model, chooser: &Chooser) -> Vec<State> {
    let shown = match model.context() {
        Context::Fleet | Context::Plan => State::ALL.to_vec(),
        Context::Agent => model
            .row(&model.agent.name)
            .map(AgentRow::state)
            .into_iter()
            .collect(),
        _ => Vec::new(),
    };
    let text = |state: &State| format!("{state} {}", state.meaning());
    let mut shown = shown;
    shown.retain(|state| has_words(&text(state), &chooser.query));
    shown
}

/// Whether a text has all words of a query.
fn has_words(text: &str, query: &str) -> bool {
    let (text, query) = (text.to_lowercase(), query.to_lowercase());
    query.split_whitespace().all(|word| text.contains(word))
}

/// The row under the cursor: where the item is now that the cursor came to, if it is
/// still offered.
pub fn place(chooser: &Chooser, choices: &[Choice]) -> Option<usize> {
    let on = chooser.on.as_ref()?;
    choices.iter().position(|choice| choice.item == *on)
}

/// Opens an overlay, or goes on with it, its cursor on an item.
pub fn show(model: &mut Model, mut overlay: Overlay) {
    let choices = choices(model, &overlay);
    if let Overlay::Help(chooser) | Overlay::Palette(chooser) = &mut overlay {
        let meant = || unambiguous(&choices, &chooser.query);
        let cursor = chooser.cursor.or_else(meant);
        chooser.cursor = cursor.map(|cursor| cursor.min(choices.len().saturating_sub(1)));
        let on = chooser
            .cursor
            .and_then(|cursor| choices.into_iter().nth(cursor));
        chooser.on = on.map(|choice| choice.item);
    }
    model.overlay = Some(overlay);
}

/// Why Enter runs nothing, where no item is under the cursor.
pub fn objection(chooser: &Chooser, choices: &[Choice]) -> String {
    let query = chooser.query.trim();
    match choices.len() {
        0 => format!("nothing matches `{query}`"),
        _ if query.is_empty() => "type a few letters of a name, or choose with Down".to_string(),
        count => format!("`{query}` fits {count} entries: type more, or choose with Down"),
    }
}

/// The only item that a query can mean: the one whose name it is, else the only one
/// whose name begins with it, else the only one that it fits at all.
fn unambiguous(choices: &[Choice], query: &str) -> Option<usize> {
    let query = query.trim().to_lowercase();
    let with = |fit: Fit| {
        let of = |choice: &Choice| Fit::new(choice, &query) == fit;
        let mut found = choices.iter().enumerate().filter(|(_, choice)| of(choice));
        (found.next().map(|(at, _)| at), found.next().is_some())
    };
    if query.is_empty() {
        return None;
    }
    for fit in [Fit::Name, Fit::ShortName, Fit::Prefix] {
        match with(fit) {
            (Some(at), false) => return Some(at),
            (Some(_), true) => return None,
            (None, _) => {}
        }
    }
    (choices.len() == 1).then_some(0)
}

/// How the name of a choice fits a query, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// It is the query.
    Name,
    /// It is the query behind the word of its kind, as in `agent scout`.
    ShortName,
    /// It begins with the query, with the word of its kind or without it.
    Prefix,
    /// It has the query in it.
    Part,
    /// It does not; letters or words of the query stand elsewhere.
    Loose,
}

impl Fit {
    /// `query` is in lower case.
    fn new(choice: &Choice, query: &str) -> Fit {
        let name = choice.id.to_lowercase();
        let kind = KINDS.iter().find_map(|kind| name.strip_prefix(kind));
        let short = kind.unwrap_or(&name);
        // `:q` is quit, whatever else has a q.
        if name == query || (query == "q" && name == "quit") {
            Fit::Name
        } else if short == query {
            Fit::ShortName
        } else if name.starts_with(query) || short.starts_with(query) {
            Fit::Prefix
        } else if name.contains(query) {
            Fit::Part
        } else {
            Fit::Loose
        }
    }
}

/// What begins the names of all that are no commands.
const KINDS: [&str; 4] = ["agent ", "filter ", "sort ", "theme "];

fn palette(model: &Model, chooser: &Chooser) -> Vec<Choice> {
    let mut choices = entries(model);
    let query = chooser.query.trim();
    if query.is_empty() {
        return choices;
    }
    // Behind one of these words nothing else is meant, and nothing like it.
    let begun = chooser.query.trim_start();
    let kind = KINDS.iter().find(|kind| begun.starts_with(**kind));
    let score = |choice: &Choice| match kind {
        None => filter::score(query, &format!("{} {}", choice.id, choice.title)),
        Some(kind) => {
            let name = choice.id.strip_prefix(kind)?;
            let text = format!("{name} {}", choice.title);
            has_words(&text, &begun[kind.len()..]).then_some(0)
        }
    };
    let lower = query.to_lowercase();
    let mut scored: Vec<(Fit, Reverse<u32>, Choice)> = choices
        .drain(..)
        .filter_map(|choice| Some((Fit::new(&choice, &lower), Reverse(score(&choice)?), choice)))
        .collect();
    scored.sort_by_key(|(fit, score, _)| (*fit, *score));
    choices.extend(scored.into_iter().map(|(_, _, choice)| choice));
    if let Some(name) = query.strip_prefix("theme ").map(str::trim)
        && choices.is_empty()
        && theme::is_name(name)
    {
        // Its file may have been made a moment ago.
        let title = format!("Wear the theme of the file {name}.toml, if there is one");
        choices.push(simple(
            ChooserItem::Theme(name.to_string()),
            query.to_string(),
            title,
        ));
    }
    choices
}

/// Everything that the palette offers: commands, screens among them, tabs, orders,
/// themes, filters, agents.
fn entries(model: &Model) -> Vec<Choice> {
    // The diff is there as a tab.
    let commands = command::offered(model)
        .filter(|spec| !matches!(spec.command, Command::Palette | Command::OpenDiff));
    let mut choices: Vec<Choice> = commands
        .map(|spec| of_command(model, spec.command))
        .collect();
    if let Some(agent) = model.subject().or(model.cursor.as_deref()) {
        choices.extend(Tab::ALL.into_iter().map(|tab| Choice {
            keys: match tab {
                Tab::Diff => model.preferences.keymap.listed(Command::OpenDiff),
                _ => String::new(),
            },
            twin: twin::of_tab(model, tab, agent),
            ..simple(
                ChooserItem::Tab(tab, agent.to_string()),
                tab.word().to_string(),
                format!("{} of {agent}", tab.title()),
            )
        }));
    }
    choices.extend(Sort::ALL.into_iter().map(|sort| {
        simple(
            ChooserItem::Sort(sort),
            format!("sort {}", sort.word()),
            format!("Order the fleet: {}", sort.title()),
        )
    }));
    choices.extend(model.themes.iter().map(|name| {
        simple(
            ChooserItem::Theme(name.clone()),
            format!("theme {name}"),
            format!("Wear the theme {name}"),
        )
    }));
    let filters = model.preferences.filters.iter();
    choices.extend(filters.map(|(name, filter)| {
        simple(
            ChooserItem::Filter(name.clone(), filter.clone()),
            format!("filter {name}"),
            format!("Show only {filter}"),
        )
    }));
    choices.extend(model.rows.iter().map(|row| {
        simple(
            ChooserItem::Agent(row.name.clone()),
            format!("agent {}", row.name),
            format!("Open {}, {}", row.name, row.state()),
        )
    }));
    choices
}

/// What is neither disabled nor has keys.
fn simple(item: ChooserItem, id: String, title: String) -> Choice {
    Choice {
        item,
        id,
        title,
        twin: None,
        keys: String::new(),
        disabled: None,
        category: None,
    }
}

fn of_command(model: &Model, command: Command) -> Choice {
    let spec = command::spec(command);
    Choice {
        item: ChooserItem::Command(command),
        id: spec.id.to_string(),
        title: spec.title.to_string(),
        keys: model.preferences.keymap.listed(command),
        twin: twin::of_command(model, command),
        disabled: command::enabled(command, model).err(),
        category: Some(spec.category),
    }
}
