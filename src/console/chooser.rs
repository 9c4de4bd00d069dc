//! What help and palette offer, and which of it a few letters choose.

use super::command::{self, Category, Command};
use super::filter;
use super::model::{Chooser, Item, Model, Overlay, Sort, twin};

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
            let found = |choice: &Choice| {
                let text = format!("{} {} {}", choice.id, choice.keys, choice.title).to_lowercase();
                chooser
                    .query
                    .to_lowercase()
                    .split_whitespace()
                    .all(|word| text.contains(word))
            };
            choices.retain(found);
            choices
        }
        Overlay::Palette(chooser) => palette(model, chooser),
        Overlay::Unlock | Overlay::Question(_) | Overlay::Seal(_) => Vec::new(),
    }
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

fn palette(model: &Model, chooser: &Chooser) -> Vec<Choice> {
    let commands = command::offered(model).filter(|spec| spec.command != Command::Palette);
    let mut choices: Vec<Choice> = commands
        .map(|spec| of_command(model, spec.command))
        .collect();
    choices.extend(Sort::ALL.into_iter().map(|sort| Choice {
        item: Item::Sort(sort),
        id: format!("sort {}", sort.word()),
        title: format!("Order the fleet by {}", sort.word()),
        twin: None,
        keys: String::new(),
        disabled: None,
        category: None,
    }));
    choices.extend(model.themes.iter().map(|name| Choice {
        item: Item::Theme(name.clone()),
        id: format!("theme {name}"),
        title: format!("Wear the theme {name}"),
        twin: None,
        keys: String::new(),
        disabled: None,
        category: None,
    }));
    let filters = model.preferences.filters.iter();
    choices.extend(filters.map(|(name, filter)| Choice {
        item: Item::Filter(filter.clone()),
        id: format!("filter {name}"),
        title: format!("Show only {filter}"),
        twin: None,
        keys: String::new(),
        disabled: None,
        category: None,
    }));
    choices.extend(model.rows.iter().map(|row| Choice {
        item: Item::Agent(row.name.clone()),
        id: format!("agent {}", row.name),
        title: format!("Open {}, {}", row.name, row.state()),
        twin: None,
        keys: String::new(),
        disabled: None,
        category: None,
    }));
    let query = chooser.query.trim();
    if query.is_empty() {
        return choices;
    }
    let mut scored: Vec<(bool, u32, Choice)> = choices
        .into_iter()
        .filter_map(|choice| {
            let text = format!("{} {}", choice.id, choice.title);
            let score = filter::score(query, &text)?;
            // `:q` is quit, whatever else has a q.
            let exact = choice.id.starts_with(query) || (query == "q" && choice.id == "quit");
            Some((exact, score, choice))
        })
        .collect();
    scored.sort_by_key(|(exact, score, _)| std::cmp::Reverse((*exact, *score)));
    scored.into_iter().map(|(_, _, choice)| choice).collect()
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
