//! What help and palette offer, and which of it a few letters choose.

use super::command::{self, Category, Command, Context};
use super::filter;
use super::model::{Chooser, Item, Model, Overlay, Row, Sort, twin};
use super::theme;
use crate::engine::State;

/// One line of a chooser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// What it does.
    pub item: Item,
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
            .map(Row::state)
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
    match &chooser.on {
        Some(on) => choices.iter().position(|choice| choice.item == *on),
        None => None,
    }
}

/// Opens an overlay, or goes on with it, its cursor on an item.
pub fn show(model: &mut Model, mut overlay: Overlay) {
    let choices = choices(model, &overlay);
    if let Overlay::Help(chooser) | Overlay::Palette(chooser) = &mut overlay {
        chooser.cursor = chooser.cursor.min(choices.len().saturating_sub(1));
        chooser.on = choices.into_iter().nth(chooser.cursor).map(|it| it.item);
    }
    model.overlay = Some(overlay);
}

/// What begins the names of all that are no commands.
const KINDS: [&str; 4] = ["agent ", "filter ", "sort ", "theme "];

fn palette(model: &Model, chooser: &Chooser) -> Vec<Choice> {
    let commands = command::offered(model).filter(|spec| spec.command != Command::Palette);
    let mut choices: Vec<Choice> = commands
        .map(|spec| of_command(model, spec.command))
        .collect();
    choices.extend(Sort::ALL.into_iter().map(|sort| {
        simple(
            Item::Sort(sort),
            format!("sort {}", sort.word()),
            format!("Order the fleet: {}", sort.title()),
        )
    }));
    choices.extend(model.themes.iter().map(|name| {
        simple(
            Item::Theme(name.clone()),
            format!("theme {name}"),
            format!("Wear the theme {name}"),
        )
    }));
    let filters = model.preferences.filters.iter();
    choices.extend(filters.map(|(name, filter)| {
        simple(
            Item::Filter(name.clone(), filter.clone()),
            format!("filter {name}"),
            format!("Show only {filter}"),
        )
    }));
    choices.extend(model.rows.iter().map(|row| {
        simple(
            Item::Agent(row.name.clone()),
            format!("agent {}", row.name),
            format!("Open {}, {}", row.name, row.state()),
        )
    }));
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
            let text = format!("{name} {}", choice.title).to_lowercase();
            let mut words = begun[kind.len()..].split_whitespace();
            words
                .all(|word| text.contains(&word.to_lowercase()))
                .then_some(0)
        }
    };
    let mut scored: Vec<(bool, u32, Choice)> = choices
        .into_iter()
        .filter_map(|choice| {
            let score = score(&choice)?;
            // `:q` is quit, whatever else has a q.
            let exact = choice.id.starts_with(query) || (query == "q" && choice.id == "quit");
            Some((exact, score, choice))
        })
        .collect();
    scored.sort_by_key(|(exact, score, _)| std::cmp::Reverse((*exact, *score)));
    let mut choices: Vec<Choice> = scored.into_iter().map(|(_, _, choice)| choice).collect();
    if let Some(name) = query.strip_prefix("theme ").map(str::trim)
        && choices.is_empty()
        && theme::is_name(name)
    {
        // Its file may have been made a moment ago.
        let title = format!("Wear the theme of the file {name}.toml, if there is one");
        choices.push(simple(
            Item::Theme(name.to_string()),
            query.to_string(),
            title,
        ));
    }
    choices
}

/// What is neither disabled nor has keys.
fn simple(item: Item, id: String, title: String) -> Choice {
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
        item: Item::Command(command),
        id: spec.id.to_string(),
        title: spec.title.to_string(),
        keys: model.preferences.keymap.listed(command),
        twin: twin::of_command(model, command),
        disabled: command::enabled(command, model).err(),
        category: Some(spec.category),
    }
}
