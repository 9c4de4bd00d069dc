//! The text on the screen: the pane that the keys for texts act on. Its display options are those of
//! the agent screen, wherever it is shown.

use super::Model;
use crate::console::command::{Command, require};
use crate::console::screen::Screen;
use crate::console::screens::agent::state::{AgentTab, MIN_SIDE_BY_SIDE_COLUMNS};
use crate::console::screens::archives::state::ArchivesPage;
use crate::console::screens::baselines::state::BaselinesPage;
use crate::console::screens::reset::plan_footer::plan_details_height;
use crate::console::text::{Arrangement, Pane, PaneStyle};
use crate::console::widgets::text_pane::{Gutter, SIDE_GUTTER_CELLS, TextPane, divider_column};

/// Unchanged lines shown around a change in the details of a plan.
const DETAIL_CONTEXT_LINES: usize = 1;

/// Whether the screen shows a text.
pub fn has_text(model: &Model) -> bool {
    match model.screen {
        Screen::Agent => !model.agent.is_list(),
        Screen::Baselines => model.baselines.page == BaselinesPage::Comparison,
        Screen::BaselinePlan => model.baseline_plan.view().is_some(),
        Screen::Reset => model.reset.has_details(),
        Screen::Archives => model.archives.page.has_text(),
        _ => false,
    }
}

/// Returns the pane of the text on the screen; that of the agent screen where there is none.
pub fn visible_pane(model: &Model) -> &Pane {
    match model.screen {
        Screen::Baselines => &model.baselines.comparison.shown.pane,
        Screen::BaselinePlan => &model.baseline_plan.pane,
        Screen::Reset if has_text(model) => &model.reset.details.pane,
        Screen::Archives => model.archives.pane(),
        _ => model.agent.current_pane(),
    }
}

/// Returns the pane of the text on the screen, to scroll or search it.
fn visible_pane_mut(model: &mut Model) -> &mut Pane {
    match model.screen {
        Screen::Baselines => &mut model.baselines.comparison.shown.pane,
        Screen::BaselinePlan => &mut model.baseline_plan.pane,
        Screen::Reset if model.reset.has_details() => &mut model.reset.details.pane,
        Screen::Archives => model.archives.pane_mut(),
        _ => model.agent.current_pane_mut(),
    }
}

/// Scrolls the text on the screen.
pub fn scroll_text(model: &mut Model, by: isize) {
    let (width, height, style) = text_extent(model);
    let has_line_cursor = has_line_cursor(model);
    let pane = visible_pane_mut(model);
    if has_line_cursor && by.abs() == 1 {
        pane.step_cursor(by, width, height, style);
    } else if has_line_cursor && by.abs() < isize::MAX / 4 {
        pane.page_cursor(by, width, height, style);
    } else {
        pane.scroll(by, width, height, style);
        if by.abs() > isize::MAX / 4 {
            let last = pane.lines.len().saturating_sub(1);
            pane.cursor_line = pane.cursor_line.saturating_add_signed(by).min(last);
        }
    }
}

/// Keeps the first visible row inside its line, which has fewer rows in a wider terminal, and the
/// cursor on the screen.
pub fn clamp_text(model: &mut Model) {
    if has_text(model) || model.screen == Screen::Agent {
        let (width, height, style) = text_extent(model);
        let has_line_cursor = has_line_cursor(model);
        let pane = visible_pane_mut(model);
        pane.clamp_top(width, style);
        if has_line_cursor {
            pane.show_cursor(width, height, style);
        }
    }
}

/// Starts a search of the text on the screen. Returns the previous query.
pub fn begin_text_search(model: &mut Model) -> String {
    let pane = visible_pane_mut(model);
    let query = pane.query.clone();
    pane.search("");
    query
}

/// Sets the query of the search and goes to its first hit.
pub fn set_text_query(model: &mut Model, query: &str) {
    let height = text_height(model);
    let pane = visible_pane_mut(model);
    pane.search(query);
    pane.go_to_first_hit(height);
    pane.move_cursor_to_hit();
}

/// Goes to the next or previous hit; without a search, to the next or previous hunk.
pub fn go_to_next_hit(model: &mut Model, is_forward: bool) {
    let height = text_height(model);
    let pane = visible_pane_mut(model);
    if pane.query.is_empty() {
        pane.go_to_hunk(is_forward, height);
    } else {
        pane.go_to_next_hit(is_forward, height);
        pane.move_cursor_to_hit();
    }
}

/// Goes to the next or previous hunk.
pub fn go_to_hunk(model: &mut Model, is_forward: bool) {
    let height = text_height(model);
    visible_pane_mut(model).go_to_hunk(is_forward, height);
}

/// Whether the text on the screen is a diff.
pub fn is_comparison(model: &Model) -> bool {
    match model.screen {
        Screen::Agent => model.agent.is_comparison(),
        Screen::Archives => model.archives.page == ArchivesPage::Comparison,
        _ => has_text(model),
    }
}

/// Whether the text on the screen is a diff of two texts, which can be arranged.
pub fn has_diff_options(model: &Model) -> bool {
    match model.screen {
        Screen::Agent => model.agent.has_diff_options(),
        _ => is_comparison(model),
    }
}

/// Checks that the screen shows a text.
pub fn check_text(model: &Model) -> Result<(), String> {
    let key = model.key_hint(Command::OpenSelected);
    let reason = format!("this tab is a list; {key} opens a text");
    require(has_text(model), reason)
}

/// Checks that the screen shows a diff of two texts.
pub fn check_comparison(model: &Model) -> Result<(), String> {
    let key = model.key_hint(Command::NextTab);
    let reason = format!("no diff on this tab; {key} switches tabs");
    require(has_diff_options(model), reason)
}

/// Checks that the texts of a diff can be side by side.
pub fn check_side_by_side(model: &Model) -> Result<(), String> {
    check_comparison(model)?;
    let key = model.key_hint(Command::ToggleFullScreen);
    require(
        model.screen != Screen::Agent || !model.agent.is_full_screen,
        format!("not side by side in full screen; {key} leaves it"),
    )?;
    let columns = model.size.0;
    require(
        columns >= MIN_SIDE_BY_SIDE_COLUMNS,
        format!(
            "side by side needs {MIN_SIDE_BY_SIDE_COLUMNS} columns; the terminal has {columns}"
        ),
    )
}

/// Checks that the screen shows a diff with hunks.
pub fn check_hunks(model: &Model) -> Result<(), String> {
    require(is_comparison(model), "hunks are on the Diff tab")?;
    let reason = match (model.screen, model.agent.tab) {
        (Screen::Agent, AgentTab::Diff) => "no hunks: nothing above the separator differs",
        _ => "no hunks: nothing differs",
    };
    require(!visible_pane(model).hunks.is_empty(), reason)
}

/// Checks that a text without a search has hunks, to which the keys for hits go then.
pub fn check_hits(model: &Model) -> Result<(), String> {
    if has_text(model) && visible_pane(model).query.is_empty() {
        return check_hunks(model);
    }
    Ok(())
}

/// Whether the text on the screen has a cursor that marks lines.
pub fn has_line_cursor(model: &Model) -> bool {
    match model.screen {
        Screen::Agent => model.agent.has_line_cursor(),
        Screen::Archives => model.archives.page == ArchivesPage::Text,
        _ => false,
    }
}

/// Whether the text on the screen is not loaded yet.
pub fn is_text_awaited(model: &Model) -> bool {
    match model.screen {
        Screen::Baselines => !model.baselines.comparison.shown.is_loaded,
        Screen::BaselinePlan => false,
        Screen::Archives => !model.archives.is_text_loaded(),
        Screen::Reset => visible_pane(model).lines.is_empty(),
        _ if model.agent.has_own_job() => model.agent.current_pane().lines.is_empty(),
        _ => model.agent.generation == 0,
    }
}

/// Whether the text takes the whole screen.
pub fn is_text_full_screen(model: &Model) -> bool {
    model.screen == Screen::Agent && model.agent.is_full_screen && !model.agent.is_list()
}

/// Arranges all texts by the options and the width of the screen; the lines at their tops stay.
pub fn arrange_panes(model: &mut Model) {
    let options = model.text_options;
    let arrangement = Arrangement {
        context_lines: options.context_lines,
        is_side_by_side: !options.is_unified && model.size.0 >= MIN_SIDE_BY_SIDE_COLUMNS,
    };
    let in_agent = Arrangement {
        is_side_by_side: arrangement.is_side_by_side && !model.agent.is_full_screen,
        ..arrangement
    };
    let in_plan = Arrangement {
        context_lines: Some(DETAIL_CONTEXT_LINES),
        ..arrangement
    };
    for (pane, arrangement) in [
        (&mut model.agent.diff, in_agent),
        (&mut model.agent.baseline, in_agent),
        (&mut model.agent.history.diff, in_agent),
        (&mut model.baselines.comparison.shown.pane, arrangement),
        (&mut model.baseline_plan.pane, arrangement),
        (&mut model.archives.comparison.shown.pane, arrangement),
        (&mut model.reset.details.pane, in_plan),
    ] {
        pane.set_arrangement(arrangement);
        pane.set_whitespace_ignored(options.is_whitespace_ignored);
    }
}

/// Returns the rows of the text that fit.
pub fn text_height(model: &Model) -> usize {
    let fixed = match (is_text_full_screen(model), is_side_by_side(model)) {
        (true, _) => 1,
        // A row has the titles of the two sides.
        (false, true) => 8,
        (false, false) => 7,
    };
    let fixed = match model.screen {
        Screen::Baselines => fixed + 1,
        Screen::BaselinePlan => {
            model.baseline_plan.frame_rows(model.size.1) + usize::from(is_side_by_side(model))
        }
        Screen::Reset if has_text(model) => return plan_details_height(model).max(1),
        _ => fixed,
    };
    model.rows_beside(fixed)
}

/// Whether two texts are side by side.
pub fn is_side_by_side(model: &Model) -> bool {
    is_comparison(model) && visible_pane(model).is_side_by_side()
}

/// Returns what is left of the lines of the text.
fn gutter(model: &Model) -> Gutter<'_> {
    let agent = &model.agent;
    match agent.tab {
        _ if is_side_by_side(model) => Gutter::Sides,
        _ if model.screen == Screen::Archives && !is_comparison(model) => Gutter::Entry {
            marked: Some(&model.archives.text.marked_lines),
            has_cursor: has_line_cursor(model),
        },
        _ if is_comparison(model) && is_text_full_screen(model) => Gutter::Sign,
        _ if is_comparison(model) => Gutter::Diff,
        AgentTab::Memory if model.screen == Screen::Agent && !is_text_full_screen(model) => {
            Gutter::Entry {
                marked: None,
                has_cursor: false,
            }
        }
        AgentTab::Facts => Gutter::Labels(&agent.fact_labels),
        _ if is_text_full_screen(model) => Gutter::None,
        _ => Gutter::Notes {
            marked: agent.marked_lines_of(&agent.agent),
        },
    }
}

/// Returns the text of the screen, as it is drawn.
pub fn text_pane(model: &Model) -> TextPane<'_> {
    TextPane {
        pane: visible_pane(model),
        style: pane_style(model),
        gutter: gutter(model),
    }
}

/// Returns the cells of a line of the text, the rows that fit, and how the lines are laid out.
fn text_extent(model: &Model) -> (usize, usize, PaneStyle) {
    let width = usize::from(model.size.0).saturating_sub(gutter(model).width());
    (width.max(1), text_height(model), pane_style(model))
}

/// Returns how the lines of the text are laid out.
fn pane_style(model: &Model) -> PaneStyle {
    let is_agent = model.screen == Screen::Agent;
    let is_notes = matches!(
        model.agent.tab,
        AgentTab::Scratch | AgentTab::Facts | AgentTab::Memory
    );
    let marks_whitespace = model.text_options.is_whitespace_marked;
    let half = usize::from(divider_column(model.size.0));
    PaneStyle {
        is_wrapping: model.text_options.is_wrapping,
        is_whitespace_marked: marks_whitespace && (!is_agent || model.agent.is_file_text()),
        is_prose: is_agent && is_notes || model.screen == Screen::Archives && !is_comparison(model),
        has_word_marks: model.has_word_marks,
        half_width: half.saturating_sub(SIDE_GUTTER_CELLS).max(1),
    }
}
