//! What the baselines screen does: lists baselines, shows the versions of one, and compares two of
//! them.

use crate::console::age::format_age;
use crate::console::command::{Command, require};
use crate::console::message::{ComparisonTexts, Effect};
use crate::console::model::Model;
use crate::console::model::plans::check_baseline_planning;
use crate::console::model::targets::{restorable_version, subject_baseline};
use crate::console::model::visible_text::{scroll_text, text_height};
use crate::console::overlay::Overlay;
use crate::console::screen::Screen;
use crate::console::screens::baselines::state::{
    BaselinesPage, ComparedVersion, ComparisonRequest, ComparisonView, NO_BASELINE_REASON,
    VersionsView,
};
use crate::console::screens::verify::state::{VerifyRow, VerifyStage};
use crate::console::text::{ComparedTexts, Comparison, PreparedText};
use crate::console::widgets::list_pane::step_index;
use crate::engine::{BaselineList, BaselineVersion};

/// Goes to the list of baselines, with the cursor on the one that the screen is about.
pub fn open(model: &mut Model) -> Vec<Effect> {
    let subject = subject_baseline(model).map(str::to_string);
    if model.screen != Screen::Baselines {
        let screen = &mut model.baselines;
        screen.list_pane.key = subject.or(screen.list_pane.key.take());
        // The cursor goes where it is wanted.
        let wanted = screen.list_pane.key.as_deref();
        let wanted = wanted.and_then(|name| screen.find(name));
        if wanted.is_some_and(|it| !screen.is_visible(it)) {
            screen.filter.clear();
        }
    }
    model.baselines.page = BaselinesPage::List;
    model.go_to_screen(Screen::Baselines);
    vec![Effect::LoadBaselines]
}

/// Shows the loaded list. The cursor keeps its baseline.
pub fn handle_list(model: &mut Model, list: Result<Box<BaselineList>, String>) {
    if let Err(why) = &list {
        model.report_error(why.clone());
    }
    if let Ok(list) = &list {
        let names: Vec<&str> = list.baselines.iter().map(|it| it.name.as_str()).collect();
        let marks = &mut model.baselines.marks;
        marks.retain(|name| names.contains(&name.as_str()));
    }
    let current = name_at_cursor(model).filter(|name| model.baselines.find(name).is_some());
    if let (Ok(list), VerifyStage::Done(result)) = (&list, &mut model.verify.stage) {
        result.follow_list(list);
    }
    model.baselines.list = Some(list);
    let is_listed = |name: &String| model.baselines.find(name).is_some();
    let is_loaded = matches!(model.baselines.list, Some(Ok(_)));
    if let Some(name) = current.filter(|name| is_loaded && !is_listed(name)) {
        let text = format!("{name} is no longer listed; the cursor has moved");
        model.report_warning(text);
    }
    model.is_dirty |= model.screen.shows_baseline_states();
}

/// Returns the baseline that a key was pressed at, on a screen with a list of baselines.
fn name_at_cursor(model: &Model) -> Option<String> {
    match (model.screen, &model.verify.list.key) {
        (Screen::Verify, Some(VerifyRow::Baseline(name))) => Some(name.clone()),
        (Screen::Baselines, _) if model.baselines.page == BaselinesPage::List => {
            model.baselines.list_pane.key.clone()
        }
        _ => None,
    }
}

/// Keeps the cursors where they are when rows move: a key is about what it was pressed at.
pub fn pin_cursors(model: &mut Model) {
    match model.screen {
        Screen::Baselines if model.baselines.page == BaselinesPage::List => {
            let screen = &mut model.baselines;
            screen.list_pane = screen.list_pane.pinned(&screen.visible_summaries()[..]);
        }
        Screen::Verify => {
            let rows = model.verify.rows(&model.baselines);
            model.verify.list = model.verify.list.pinned(&rows[..]);
        }
        _ => {}
    }
}

/// Shows the loaded versions, if they are still wanted.
pub fn handle_versions(
    model: &mut Model,
    name: &str,
    records: Result<Vec<BaselineVersion>, String>,
) {
    let view = &mut model.baselines.versions;
    if view.name == name {
        view.list = view.list.pinned(view.records());
        view.records = Some(records);
        model.is_dirty = true;
    }
}

/// Shows a prepared comparison, if it is still wanted.
pub fn handle_comparison(
    model: &mut Model,
    request: &ComparisonRequest,
    texts: Result<Box<ComparisonTexts>, String>,
) {
    if model.baselines.comparison.request != *request {
        return;
    }
    let height = text_height(model);
    let texts = match texts {
        Ok(texts) => {
            model.baselines.comparison.request.sides[0] = texts.old_side;
            texts.texts
        }
        Err(why) => {
            let key = model.key_hint(Command::NextVersion);
            ComparedTexts {
                text: PreparedText::note(format!("{why}; {key} compares with another version")),
                titles: side_labels(request),
                changed_lines: (0, 0),
            }
        }
    };
    model.baselines.comparison.shown.show(texts, height);
    model.is_dirty = true;
}

fn side_labels(request: &ComparisonRequest) -> [String; 2] {
    request.sides.each_ref().map(ComparedVersion::label)
}

/// Loads what the screen shows again.
pub fn reload(model: &Model) -> Vec<Effect> {
    let mut effects = vec![Effect::LoadBaselines];
    match model.baselines.page {
        _ if model.screen != Screen::Baselines => {}
        BaselinesPage::List => {}
        BaselinesPage::Versions => {
            let name = model.baselines.versions.name.clone();
            effects.push(Effect::LoadBaselineVersions(name));
        }
        BaselinesPage::Comparison => {
            let request = model.baselines.comparison.request.clone();
            effects.push(Effect::CompareBaseline(request));
        }
    }
    effects
}

/// Loads what the screen shows again after a visit to another: it may have changed unseen.
pub fn reload_on_return(model: &Model) -> Vec<Effect> {
    if model.screen.shows_baseline_states() {
        reload(model)
    } else {
        Vec::new()
    }
}

/// Opens the evidence of an agent whose baseline differs from its seal.
pub fn open_evidence(model: &mut Model, baseline: String) -> Vec<Effect> {
    let request = ComparisonRequest::with_file(baseline, ComparedVersion::Sealed);
    open_comparison(model, request)
}

/// Checks that a baseline is under the cursor.
pub fn check_subject(model: &Model) -> Result<(), String> {
    require(model.baselines.subject().is_some(), NO_BASELINE_REASON)
}

/// Checks that a change of the baseline under the cursor can be planned.
pub fn check_change(model: &Model) -> Result<(), String> {
    check_baseline_planning(model)?;
    check_subject(model)
}

/// Checks that a version can be put back.
pub fn check_restore(model: &Model) -> Result<(), String> {
    check_baseline_planning(model)?;
    restorable_version(model).map(drop)
}

/// Compares the baseline under the cursor with what matters most, or the version under the cursor
/// with the file.
pub fn open_selected(model: &mut Model) -> Result<Vec<Effect>, String> {
    let request = match model.baselines.page {
        BaselinesPage::Comparison => return Ok(Vec::new()),
        BaselinesPage::Versions => {
            let name = model.baselines.subject().unwrap_or_default().to_string();
            ComparisonRequest::with_file(name, model.baselines.restorable_version()?)
        }
        BaselinesPage::List => {
            let current = model.baselines.current_summary();
            ComparisonRequest::first_of(current.ok_or(NO_BASELINE_REASON)?)
        }
    };
    Ok(open_comparison(model, request))
}

fn open_comparison(model: &mut Model, request: ComparisonRequest) -> Vec<Effect> {
    let is_here = model.screen == Screen::Baselines;
    model.baselines.comparison = ComparisonView {
        shown: Comparison::awaited(side_labels(&request)),
        request: request.clone(),
        opened_from: model.screen,
        opened_from_page: if is_here {
            model.baselines.page
        } else {
            BaselinesPage::List
        },
    };
    model.baselines.list_pane.key = Some(request.name.clone());
    model.baselines.page = BaselinesPage::Comparison;
    model.go_to_screen(Screen::Baselines);
    // The list says whether the file may be pushed.
    vec![Effect::CompareBaseline(request), Effect::LoadBaselines]
}

/// Opens the choice of a text for one side; `kind` is the word for it in the palette.
pub fn choose_side(model: &mut Model, kind: &str) -> Vec<Effect> {
    let name = model.baselines.comparison.request.name.clone();
    model.overlay = Some(Overlay::palette(kind));
    if model.baselines.versions.name == name {
        return Vec::new();
    }
    model.baselines.versions = VersionsView {
        name: name.clone(),
        ..VersionsView::default()
    };
    vec![Effect::LoadBaselineVersions(name)]
}

/// Compares with another text on one side.
pub fn change_side(model: &mut Model, side: usize, version: ComparedVersion) -> Vec<Effect> {
    let view = &mut model.baselines.comparison;
    if view.request.sides[side] == version {
        return Vec::new();
    }
    view.request.sides[side] = version;
    view.request.fallback = None;
    view.shown = Comparison::awaited(side_labels(&view.request));
    let request = view.request.clone();
    vec![Effect::CompareBaseline(request)]
}

/// Compares with the next of the versions that every baseline may have, around the ends.
pub fn cycle_old_side(model: &mut Model, by: usize) -> Vec<Effect> {
    let [old, new] = &model.baselines.comparison.request.sides;
    let all = &ComparedVersion::COMMON;
    let index = all.iter().position(|it| it == old);
    let index = index.map_or(0, |index| (index + by) % all.len());
    // A text is not compared with itself.
    let version = match &all[index] {
        version if version == new => all[(index + by) % all.len()].clone(),
        version => version.clone(),
    };
    change_side(model, 0, version)
}

/// Compares the next or a previous baseline of the list.
pub fn open_neighbour(model: &mut Model, by: isize) -> Result<Vec<Effect>, String> {
    let all = model.baselines.visible_summaries();
    let name = model.baselines.subject();
    let index = all.iter().position(|it| Some(it.name.as_str()) == name);
    let next = step_index(index.unwrap_or(0), by, all.len());
    let summary = all.get(next).filter(|it| Some(it.name.as_str()) != name);
    let summary = summary.ok_or("no further baseline")?;
    let request = ComparisonRequest::first_of(summary);
    let from = {
        let view = &model.baselines.comparison;
        (view.opened_from, view.opened_from_page)
    };
    let effects = open_comparison(model, request);
    let view = &mut model.baselines.comparison;
    (view.opened_from, view.opened_from_page) = from;
    Ok(effects)
}

/// Shows the versions of the baseline that a key is about.
pub fn open_versions(model: &mut Model) -> Vec<Effect> {
    let Some(name) = model.baselines.subject().map(str::to_string) else {
        return Vec::new();
    };
    model.baselines.versions = VersionsView {
        name: name.clone(),
        ..VersionsView::default()
    };
    model.baselines.list_pane.key = Some(name.clone());
    model.baselines.page = BaselinesPage::Versions;
    vec![Effect::LoadBaselineVersions(name)]
}

/// Marks baselines, or clears their marks.
pub fn change_marks(model: &mut Model, command: Command) {
    match command {
        Command::MarkAll => mark_all(model),
        Command::ClearMarks => model.baselines.marks.clear(),
        _ => toggle_mark(model),
    }
}

/// Marks or unmarks the baseline under the cursor, and moves down.
fn toggle_mark(model: &mut Model) {
    let Some(name) = model.baselines.subject().map(str::to_string) else {
        return;
    };
    if !model.baselines.marks.remove(&name) {
        model.baselines.marks.insert(name);
    }
    move_cursor(model, 1);
}

fn mark_all(model: &mut Model) {
    let names: Vec<String> = model
        .baselines
        .visible_summaries()
        .iter()
        .map(|it| it.name.clone())
        .collect();
    model.baselines.marks.extend(names);
}

/// Moves the cursor by rows, or scrolls.
pub fn move_cursor(model: &mut Model, by: isize) {
    match model.baselines.page {
        BaselinesPage::Comparison => scroll_text(model, by),
        BaselinesPage::List => {
            let screen = &mut model.baselines;
            screen.list_pane = screen
                .list_pane
                .stepped(by, &screen.visible_summaries()[..]);
        }
        BaselinesPage::Versions => {
            let view = &mut model.baselines.versions;
            view.list = view.list.stepped(by, view.records());
        }
    }
}

/// Goes back one level: Esc clears the search; then the comparison, the versions and the screen are
/// left.
pub fn go_back(model: &mut Model, is_escape: bool) {
    match model.baselines.page {
        BaselinesPage::Comparison
            if is_escape && !model.baselines.comparison.shown.pane.query.is_empty() =>
        {
            model.baselines.comparison.shown.pane.search("");
        }
        BaselinesPage::Comparison => {
            let (screen, page) = {
                let view = &model.baselines.comparison;
                (view.opened_from, view.opened_from_page)
            };
            model.baselines.page = page;
            // The agent screen must not lead back here, or the two would lead to each other forever.
            model.return_point.from_agent = Screen::Fleet;
            let is_closed = screen == Screen::Editor && model.editor.is_none();
            model.go_to_screen(if is_closed { Screen::Fleet } else { screen });
        }
        BaselinesPage::Versions => model.baselines.page = BaselinesPage::List,
        BaselinesPage::List if is_escape && !model.baselines.filter.is_empty() => {
            model.baselines.filter.clear();
        }
        BaselinesPage::List => model.go_to_screen(Screen::Fleet),
    }
}

/// Returns the ages on the screen.
pub fn visible_ages(model: &Model) -> Vec<String> {
    if model.baselines.page != BaselinesPage::List {
        return Vec::new();
    }
    let now = model.now.local_time;
    let all = model.baselines.summaries().iter();
    let times = all.flat_map(|it| [it.changed, it.last_push.as_ref().map(|push| push.time)]);
    times.flatten().map(|then| format_age(now, then)).collect()
}
