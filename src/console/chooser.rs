//! Choices of the help and palette overlays: lists them, filters and ranks them by the query,
//! and finds the row under the cursor. Runs nothing and draws nothing.

use std::cmp::Reverse;

use super::age::format_time;
use super::command::{Command, CommandCategory, KeyContext};
use super::dispatch::{check_enabled, offered_commands};
use super::filter;
use super::model::targets::subject_agent;
use super::model::{Model, RunSign, equivalent_command};
use super::overlay::{Chooser, ChooserItem, OPERATION_KIND, Overlay};
use super::screen::Screen;
use super::screens::agent::state::AgentTab;
use super::screens::baselines::state::ComparedVersion;
use super::screens::fleet::sort_order::SortOrder;
use super::theme;
use crate::console::agent_row::AgentRow;
use crate::engine::{Protection, State};
use crate::layouts::OperationSpec;

/// One line of a chooser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChooserChoice {
    /// What Enter runs.
    pub item: ChooserItem,
    /// Name in the palette, with its kind: `agent scout`, `sort name`.
    pub id: String,
    /// One-line description.
    pub title: String,
    /// Equivalent command line, if there is one.
    pub equivalent_command: Option<String>,
    /// Its keys, for display.
    pub keys: String,
    /// Why it is disabled now.
    pub disabled_reason: Option<String>,
    /// Heading in help.
    pub category: Option<CommandCategory>,
}

/// Returns the choices of an overlay in display order.
pub fn list_choices(model: &Model, overlay: &Overlay) -> Vec<ChooserChoice> {
    match overlay {
        Overlay::Help(chooser) => {
            let mut choices: Vec<ChooserChoice> = offered_commands(model)
                .map(|spec| command_choice(model, spec.command))
                .collect();
            choices.sort_by_key(|choice| choice.category);
            let text = |it: &ChooserChoice| format!("{} {} {}", it.id, it.keys, it.title);
            choices.retain(|choice| contains_all_words(&text(choice), &chooser.query));
            choices
        }
        Overlay::Palette(chooser) => palette_choices(model, chooser),
        Overlay::UnlockReadOnly | Overlay::AnswerQuestion(_) | Overlay::Timer(_) => Vec::new(),
    }
}

/// A sign that help explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegendEntry {
    /// A state.
    State(State),
    /// A protection, marked behind the name of an agent.
    Protection(Protection),
    /// How a last run ended.
    LastRun(RunSign),
}

impl LegendEntry {
    /// Returns the sign, the word for it and what it means.
    pub fn texts(self) -> [&'static str; 3] {
        match self {
            LegendEntry::State(it) => [it.glyph().trim_end(), it.as_str(), it.description()],
            LegendEntry::Protection(it) => [it.glyph(), it.as_str(), it.description()],
            LegendEntry::LastRun(it) => ["", it.as_str(), it.description()],
        }
    }

    /// Returns the heading above it.
    pub fn heading(self) -> &'static str {
        match self {
            LegendEntry::State(_) | LegendEntry::Protection(_) => "States",
            LegendEntry::LastRun(_) => "LAST RUN",
        }
    }
}

/// Returns the signs that help explains, if they match the query: over the fleet and a plan all
/// states, over the fleet also the protections and the ends of last runs that it has, over an agent its
/// own state, over other screens none.
pub fn legend_entries(model: &Model, chooser: &Chooser) -> Vec<LegendEntry> {
    let context = model.key_context();
    let states = match context {
        KeyContext::Fleet | KeyContext::Plan => State::ALL.to_vec(),
        KeyContext::Agent => model
            .find_row(&model.agent.agent)
            .map(AgentRow::state)
            .into_iter()
            .collect(),
        _ => Vec::new(),
    };
    let protections = [Protection::ReadOnly, Protection::Typed].into_iter();
    let has_protection = |it: &Protection| model.rows.iter().any(|row| row.protection() == *it);
    let protections = protections.filter(|it| context == KeyContext::Fleet && has_protection(it));
    let run_signs = model.rows.run_signs();
    let run_signs = run_signs.filter(|_| context == KeyContext::Fleet);
    let states = states.into_iter().map(LegendEntry::State);
    states
        .chain(protections.map(LegendEntry::Protection))
        .chain(run_signs.map(LegendEntry::LastRun))
        .filter(|it| contains_all_words(&it.texts().join(" "), &chooser.query))
        .collect()
}

/// Whether a text contains all words of a query, ignoring case.
fn contains_all_words(text: &str, query: &str) -> bool {
    let (text, query) = (text.to_lowercase(), query.to_lowercase());
    query.split_whitespace().all(|word| text.contains(word))
}

/// Whether each word of a query begins a word of a text; both are lower case.
fn begins_words(text: &str, query: &str) -> bool {
    let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).collect();
    let mut asked = query.split_whitespace();
    asked.all(|word| words.iter().any(|it| it.starts_with(word)))
}

/// Returns the current row of the selected item, if it is still offered.
pub fn cursor_row(chooser: &Chooser, choices: &[ChooserChoice]) -> Option<usize> {
    let selected = chooser.selected.as_ref()?;
    choices.iter().position(|choice| choice.item == *selected)
}

/// Selects the item under the cursor of help or palette where none is selected; without a cursor, the
/// one that the query identifies.
pub fn select_item(model: &mut Model) {
    let choices = match &model.overlay {
        Some(overlay @ (Overlay::Help(chooser) | Overlay::Palette(chooser)))
            if chooser.selected.is_none()
                && (chooser.cursor_row.is_some() || !chooser.query.is_empty()) =>
        {
            list_choices(model, overlay)
        }
        _ => return,
    };
    if let Some(Overlay::Help(chooser) | Overlay::Palette(chooser)) = &mut model.overlay {
        let best_match = || unambiguous_match(&choices, &chooser.query);
        let cursor = chooser.cursor_row.or_else(best_match);
        chooser.cursor_row = cursor.map(|cursor| cursor.min(choices.len().saturating_sub(1)));
        let on = chooser
            .cursor_row
            .and_then(|cursor| choices.into_iter().nth(cursor));
        chooser.selected = on.map(|choice| choice.item);
    }
}

/// Returns the item of the palette whose whole name is the query, with or without its kind.
pub fn find_exact_item(model: &Model, palette: &Chooser) -> Option<ChooserItem> {
    let query = palette.query.trim().to_lowercase();
    let mut choices = palette_choices(model, palette);
    let of_rank = |rank: MatchRank| {
        let is_exact = |choice: &&ChooserChoice| MatchRank::new(choice, &query) == rank;
        let mut found = choices.iter().enumerate().filter(|(_, it)| is_exact(it));
        let first = found.next().map(|(at, _)| at);
        first.filter(|_| found.next().is_none())
    };
    let at = of_rank(MatchRank::ExactName).or_else(|| of_rank(MatchRank::ExactShortName))?;
    Some(choices.swap_remove(at).item)
}

/// Returns the reason why Enter runs nothing when no item is selected.
pub fn no_choice_reason(chooser: &Chooser, choices: &[ChooserChoice]) -> String {
    let query = chooser.query.trim();
    match choices.len() {
        0 => format!("no match for `{query}`"),
        _ if query.is_empty() => "type part of a name, or choose with Down".to_string(),
        count => format!("{count} matches for `{query}`: type more, or choose with Down"),
    }
}

/// Returns the row that a query identifies: the exact name, else the only name with that
/// prefix, else the only title with its words if no name contains it, else the only match.
fn unambiguous_match(choices: &[ChooserChoice], query: &str) -> Option<usize> {
    let query = query.trim().to_lowercase();
    let find_by_rank = |rank: MatchRank| {
        let of = |choice: &ChooserChoice| MatchRank::new(choice, &query) == rank;
        let mut found = choices.iter().enumerate().filter(|(_, choice)| of(choice));
        (found.next().map(|(at, _)| at), found.next().is_some())
    };
    if query.is_empty() {
        return None;
    }
    for fit in [
        MatchRank::ExactName,
        MatchRank::ExactShortName,
        MatchRank::Prefix,
        MatchRank::Substring,
        MatchRank::TitleWords,
    ] {
        match find_by_rank(fit) {
            // The words of a title may mean another one as well.
            (Some(_), _) if fit == MatchRank::Substring => break,
            (Some(at), false) => return Some(at),
            (Some(_), true) => return None,
            (None, _) => {}
        }
    }
    (choices.len() == 1).then_some(0)
}

/// Rank of the match between a choice's name and a query, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum MatchRank {
    /// The name equals the query.
    ExactName,
    /// The name without its kind equals the query: `scout` of `agent scout`.
    ExactShortName,
    /// The name begins with the query, with or without its kind.
    Prefix,
    /// The name contains the query.
    Substring,
    /// Words of the title begin with the words of the query.
    TitleWords,
    /// Only letters of the query match.
    Fuzzy,
}

impl MatchRank {
    /// Ranks a choice; `query` is lower case.
    fn new(choice: &ChooserChoice, query: &str) -> MatchRank {
        let name = choice.id.to_lowercase();
        let kind = KIND_PREFIXES
            .iter()
            .find_map(|kind| name.strip_prefix(kind));
        let short = kind.unwrap_or(&name);
        // `:q` is quit, as in vi, although other names contain a q.
        if name == query || (query == "q" && name == "quit") {
            MatchRank::ExactName
        } else if short == query {
            MatchRank::ExactShortName
        } else if name.starts_with(query) || short.starts_with(query) {
            MatchRank::Prefix
        } else if name.contains(query) {
            MatchRank::Substring
        } else if begins_words(&choice.title.to_lowercase(), query) {
            MatchRank::TitleWords
        } else {
            MatchRank::Fuzzy
        }
    }
}

/// Kinds that begin the names of all choices except commands.
const KIND_PREFIXES: [&str; 7] = [
    "agent ",
    "filter ",
    "new ",
    "old ",
    OPERATION_KIND,
    "sort ",
    "theme ",
];

fn palette_choices(model: &Model, chooser: &Chooser) -> Vec<ChooserChoice> {
    let mut choices = all_palette_choices(model);
    let query = chooser.query.trim();
    if query.is_empty() {
        return choices;
    }
    // A query that begins with a kind matches only that kind, and not fuzzily.
    let trimmed_query = chooser.query.trim_start();
    let kind = KIND_PREFIXES
        .iter()
        .find(|kind| trimmed_query.starts_with(**kind));
    let score = |choice: &ChooserChoice| match kind {
        None => filter::fuzzy_score(query, &format!("{} {}", choice.id, choice.title)),
        Some(kind) => {
            let name = choice.id.strip_prefix(kind)?;
            let text = format!("{name} {}", choice.title);
            contains_all_words(&text, &trimmed_query[kind.len()..]).then_some(0)
        }
    };
    let lower = query.to_lowercase();
    let mut scored: Vec<(MatchRank, Reverse<u32>, ChooserChoice)> = choices
        .drain(..)
        .filter_map(|choice| {
            Some((
                MatchRank::new(&choice, &lower),
                Reverse(score(&choice)?),
                choice,
            ))
        })
        .collect();
    scored.sort_by_key(|(fit, score, _)| (*fit, *score));
    choices.extend(scored.into_iter().map(|(_, _, choice)| choice));
    if let Some(name) = query.strip_prefix("theme ").map(str::trim)
        && choices.is_empty()
        && theme::is_theme_name(name)
    {
        // Its file may be newer than the list of themes.
        let title = format!("Switch to the theme of the file {name}.toml, if it exists");
        choices.push(plain_choice(
            ChooserItem::Theme(name.to_string()),
            query.to_string(),
            title,
        ));
    }
    choices
}

/// Returns everything that the palette offers: commands (including screens), tabs, sort
/// orders, themes, filters and agents.
fn all_palette_choices(model: &Model) -> Vec<ChooserChoice> {
    // The list of tabs contains the diff.
    let commands = offered_commands(model)
        .filter(|spec| !matches!(spec.command, Command::Palette | Command::OpenDiff));
    let mut choices: Vec<ChooserChoice> = commands
        .map(|spec| command_choice(model, spec.command))
        .collect();
    if let Some(agent) = subject_agent(model).or(model.fleet.cursor_agent.as_deref()) {
        let offered = AgentTab::offered_for(model.find_row(agent));
        choices.extend(offered.into_iter().map(|tab| ChooserChoice {
            keys: match tab {
                AgentTab::Diff => model.preferences.keymap.joined_sequences(Command::OpenDiff),
                _ => String::new(),
            },
            equivalent_command: equivalent_command::for_tab(model, tab, agent),
            ..plain_choice(
                ChooserItem::Tab(tab, agent.to_string()),
                tab.id().to_string(),
                format!("{} of {agent}", tab.description()),
            )
        }));
    }
    choices.extend(operation_choices(model));
    choices.extend(comparison_choices(model));
    choices.extend(SortOrder::ALL.into_iter().map(|sort| {
        plain_choice(
            ChooserItem::Sort(sort),
            format!("sort {}", sort.label()),
            format!("Order the fleet: {}", sort.description()),
        )
    }));
    choices.extend(model.theme_names.iter().map(|name| {
        plain_choice(
            ChooserItem::Theme(name.clone()),
            format!("theme {name}"),
            format!("Switch to theme {name}"),
        )
    }));
    let filters = model.preferences.named_filters.iter();
    choices.extend(filters.map(|(name, filter)| {
        plain_choice(
            ChooserItem::Filter(name.clone(), filter.clone()),
            format!("filter {name}"),
            format!("Show only {filter}"),
        )
    }));
    choices.extend(model.rows.iter().map(|row| {
        plain_choice(
            ChooserItem::Agent(row.name.clone()),
            format!("agent {}", row.name),
            format!("Open {}, {}", row.name, row.state()),
        )
    }));
    choices
}

/// Returns the operations on the memory on the screen.
fn operation_choices(model: &Model) -> Vec<ChooserChoice> {
    let disabled_reason = check_enabled(Command::ChooseOperation, model).err();
    let is_here = model.screen == Screen::Agent && model.agent.tab.is_about_layout();
    let opened = model.agent.memory.opened().filter(|_| is_here);
    let specs = opened.map_or(&[][..], |opened| opened.operations);
    let choice = |spec: &OperationSpec| ChooserChoice {
        disabled_reason: disabled_reason.clone(),
        equivalent_command: Some(equivalent_command::for_operation_spec(model, spec)),
        ..plain_choice(
            ChooserItem::Operation(spec.name),
            format!("{OPERATION_KIND}{}", spec.name),
            format!("Plan to {}", spec.title),
        )
    };
    specs.iter().map(choice).collect()
}

/// Returns the texts that each side of the open comparison may have.
fn comparison_choices(model: &Model) -> Vec<ChooserChoice> {
    let screen = &model.baselines;
    if model.key_context() != KeyContext::Comparison {
        return Vec::new();
    }
    let request = &screen.comparison.request;
    // Each with what happened to it when, if that is known.
    let common = ComparedVersion::COMMON.into_iter();
    let mut versions: Vec<(ComparedVersion, String)> =
        common.map(|version| (version, String::new())).collect();
    if let (Some(Ok(records)), true) = (
        &screen.versions.records,
        screen.versions.name == request.name,
    ) {
        // Also what a restore displaced: it may be the evidence.
        let stored = records.iter().flat_map(|record| {
            let time = format_time(model.now.local_time, record.time);
            let act = record.operation.as_str();
            let own = record.sha256.map(|it| (it, format!(": {act} {time}")));
            let replaced = format!(": replaced by the {act} {time}");
            let replaced = record.replaced.map(|it| (it, replaced));
            own.into_iter().chain(replaced)
        });
        for (digest, event) in stored {
            let version = ComparedVersion::Stored(digest);
            if versions.iter().all(|(it, _)| *it != version) {
                versions.push((version, event));
            }
        }
    }
    let others = screen.summaries().iter().map(|it| &it.name);
    let others = others.filter(|name| **name != request.name).cloned();
    let others = others.map(ComparedVersion::Other);
    versions.extend(others.map(|version| (version, String::new())));
    let sides = [(0, "old"), (1, "new")];
    let choice = |(side, word): (usize, &str), (version, event): &(ComparedVersion, String)| {
        plain_choice(
            ChooserItem::ComparisonSide(side, version.clone()),
            format!("{word} {}", version.label()),
            format!("Compare with it as the {word} side{event}"),
        )
    };
    let of_side = |side| versions.iter().map(move |version| choice(side, version));
    sides.into_iter().flat_map(of_side).collect()
}

/// Creates a choice that is enabled and has no keys.
fn plain_choice(item: ChooserItem, id: String, title: String) -> ChooserChoice {
    ChooserChoice {
        item,
        id,
        title,
        equivalent_command: None,
        keys: String::new(),
        disabled_reason: None,
        category: None,
    }
}

fn command_choice(model: &Model, command: Command) -> ChooserChoice {
    let keymap = &model.preferences.keymap;
    let spec = keymap.spec_of(command);
    ChooserChoice {
        item: ChooserItem::Command(command),
        id: spec.id.to_string(),
        title: spec.title.to_string(),
        keys: keymap.joined_sequences_in(model.key_context(), command),
        equivalent_command: equivalent_command::for_command(model, command),
        disabled_reason: check_enabled(command, model).err(),
        category: Some(spec.category),
    }
}
