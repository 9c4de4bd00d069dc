//! The screens. A screen is a directory: `state` is what it knows, `update` what it does and
//! `view` what it shows. This file asks the current screen; a new [`Screen`] must answer each
//! question here.

pub mod agent {
    //! One agent: its texts, its facts and its history.
    pub mod marked_lines;
    pub mod state;
    pub(in crate::console) mod update;
    pub(in crate::console) mod view;
}

pub mod archives {
    //! Everything that agents wrote: found, read and compared.
    pub mod state;
    pub(in crate::console) mod update;
    pub(in crate::console) mod view;
}

pub mod baseline_plan {
    //! A plan over baselines: a seal, a restore, a new baseline, a search and replace.
    pub mod state;
    pub(in crate::console) mod update;
    pub(in crate::console) mod view;
}

pub mod baselines {
    //! The baselines, their versions, and two of them side by side.
    pub mod state;
    pub(in crate::console) mod update;
    pub(in crate::console) mod view;
}

pub mod editor {
    //! A baseline that is edited.
    pub mod buffer;
    pub mod layout;
    pub mod promotion;
    pub mod state;
    pub mod update;
    pub(in crate::console) mod view;
}

pub mod fleet {
    //! All agents.
    pub mod columns;
    pub mod order;
    pub mod reasons;
    pub mod sort_order;
    pub mod state;
    pub(in crate::console) mod update;
    pub(in crate::console) mod view;
    pub mod visible_agents;
}

pub mod hosts {
    //! The hosts and their connections.
    pub mod state;
    pub(in crate::console) mod update;
    pub(in crate::console) mod view;
}

pub mod log {
    //! Runs of the ledger, messages of the session and background jobs.
    pub mod state;
    pub(in crate::console) mod update;
    pub(in crate::console) mod view;
}

pub mod reset {
    //! A plan, its run and the result.
    pub(in crate::console) mod details;
    pub(in crate::console) mod plan_footer;
    pub(in crate::console) mod push;
    pub mod state;
    pub mod update;
    pub(in crate::console) mod view;
}

pub mod verify {
    //! Verification of ledger, archive, baselines and seal.
    pub mod state;
    pub(in crate::console) mod update;
    pub(in crate::console) mod view;
}

use super::command::KeyContext;
use super::message::Effect;
use super::model::Model;
use super::model::undo_offers::undo_offer_age;
use super::model::visible_text::{
    self, begin_text_search, has_text, set_text_query, text_height, visible_pane,
};
use super::screen::Screen;
use super::screens::agent::view::agent_list_height;
use super::screens::archives::view::archives_list_height;
use super::screens::baselines::view::baselines_list_height;
use super::screens::editor::view::editor_height;
use super::screens::fleet::visible_agents::{fleet_height, keep_fleet_cursor_visible};
use super::screens::hosts::view::hosts_list_height;
use super::screens::log::view::log_list_height;
use super::screens::log::view::schedule::shown_timer_rows;
use super::screens::verify::view::verify_list_height;
use super::widgets::prompt::{Prompt, PromptPurpose};
use crate::console::keys::key::{Key, KeyCode};
use crate::console::widgets::canvas::Canvas;
use agent::state::AgentScreen;
use archives::state::ArchivesPage;

/// Draws the current screen.
pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    match model.screen {
        Screen::Fleet => fleet::view::draw(model, canvas),
        Screen::Agent => agent::view::draw(model, canvas),
        Screen::Reset => reset::view::draw(model, canvas),
        Screen::Log => log::view::draw(model, canvas),
        Screen::Hosts => hosts::view::draw(model, canvas),
        Screen::Baselines => baselines::view::draw(model, canvas),
        Screen::BaselinePlan => baseline_plan::view::draw(model, canvas),
        Screen::Verify => verify::view::draw(model, canvas),
        Screen::Archives => archives::view::draw(model, canvas),
        Screen::Editor => editor::view::draw(model, canvas),
    }
}

/// Returns the rows of a page.
pub fn page_rows(model: &Model) -> usize {
    match model.screen {
        Screen::Fleet => fleet_height(model),
        Screen::Hosts => hosts_list_height(model),
        Screen::Log if model.log.schedule.is_focused => shown_timer_rows(model).max(1),
        Screen::Log => log_list_height(model),
        Screen::Verify => verify_list_height(model),
        Screen::Archives if !has_text(model) => archives_list_height(model),
        Screen::Editor => editor_height(model),
        Screen::Agent if model.agent.is_list() => agent_list_height(model),
        Screen::Baselines if !has_text(model) => baselines_list_height(model),
        Screen::Agent
        | Screen::Reset
        | Screen::Baselines
        | Screen::BaselinePlan
        | Screen::Archives => text_height(model),
    }
}

/// Keeps the cursors of the fleet and of the screen's lists on a row and on the screen.
pub(super) fn fit_lists(model: &mut Model) {
    keep_fleet_cursor_visible(model);
    match model.screen {
        Screen::Agent => {
            let height = agent_list_height(model);
            let AgentScreen {
                history,
                memory,
                health,
                ..
            } = &mut model.agent;
            history.list = history.list.fitted(history.loaded_records(), height);
            let (current, count) = (memory.collection_index(), memory.collections().len());
            memory.collection_list = memory.collection_list.scrolled_to(current, count, height);
            memory.items.list = memory.items.list.fitted(&memory.items, height);
            health.list = health.list.fitted(health.findings(), height);
        }
        Screen::Baselines => {
            let height = baselines_list_height(model);
            let screen = &mut model.baselines;
            let visible = screen.visible_summaries();
            screen.list_pane = screen.list_pane.fitted(&visible[..], height);
            let versions = &mut screen.versions;
            versions.list = versions.list.fitted(versions.records(), height);
        }
        Screen::Verify => {
            let rows = model.verify.rows(&model.baselines);
            let height = verify_list_height(model);
            model.verify.list = model.verify.list.fitted(&rows[..], height);
        }
        Screen::Archives => {
            let height = archives_list_height(model);
            let screen = &mut model.archives;
            let (retention, timeline) = (&mut screen.retention, &mut screen.timeline);
            match screen.page {
                ArchivesPage::RetentionAgent => {
                    let lines = retention.detail_lines();
                    retention.detail = retention.detail.fitted(&lines[..], height);
                }
                ArchivesPage::Retention => {
                    let lines = retention.list_lines();
                    retention.list = retention.list.fitted(&lines[..], height);
                }
                _ if timeline.is_open => {
                    timeline.list = timeline.list.fitted(timeline.rows(), height);
                }
                _ => screen.list = screen.list.fitted(&*screen, height),
            }
        }
        Screen::Log => {
            let height = log_list_height(model);
            model.log.list = model.log.list.fitted(&model.log.rows()[..], height);
            let height = shown_timer_rows(model);
            let schedule = &mut model.log.schedule;
            schedule.list = schedule.list.fitted(&schedule.rows[..], height);
        }
        Screen::Hosts => {
            let height = hosts_list_height(model);
            let statuses = model.hosts.sorted_statuses();
            model.hosts.list = model.hosts.list.fitted(&statuses[..], height);
        }
        Screen::BaselinePlan => {
            let screen = &mut model.baseline_plan;
            let height = screen.list_rows(model.size.1);
            screen.list = screen.list.fitted(screen.rows(), height);
        }
        Screen::Reset => {
            // How many rows fit is known once they are drawn.
            model.reset.list.cursor = model.reset.cursor_index();
        }
        Screen::Fleet | Screen::Editor => {}
    }
}

/// Moves the cursor by rows, or scrolls.
pub(super) fn move_cursor(model: &mut Model, by: isize) -> Vec<Effect> {
    match model.screen {
        Screen::Fleet => fleet::update::move_cursor(model, by),
        Screen::Agent => return agent::update::move_cursor(model, by),
        Screen::Reset => return reset::update::move_cursor(model, by),
        Screen::Log => log::update::move_cursor(model, by),
        Screen::Baselines => baselines::update::move_cursor(model, by),
        Screen::BaselinePlan => baseline_plan::update::move_cursor(model, by),
        Screen::Verify => verify::update::move_cursor(model, by),
        Screen::Archives => archives::update::move_cursor(model, by),
        Screen::Hosts => return hosts::update::move_cursor(model, by),
        Screen::Editor => editor::update::move_cursor(model, by),
    }
    Vec::new()
}

/// Moves the cursor by pages, or scrolls.
pub(super) fn move_page(model: &mut Model, by: isize) -> Vec<Effect> {
    match model.screen {
        Screen::Editor => editor::update::move_page(model, by),
        _ => move_cursor(model, by * page_rows(model) as isize),
    }
}

/// Moves the cursor by half pages, or scrolls.
pub(super) fn move_half_page(model: &mut Model, by: isize) -> Vec<Effect> {
    match model.screen {
        Screen::Editor => editor::update::move_half_page(model, by),
        _ => move_cursor(model, by * (page_rows(model) / 2) as isize),
    }
}

/// Goes to the first or last row.
pub(super) fn go_to_end(model: &mut Model, is_last: bool) -> Vec<Effect> {
    let by = if is_last {
        isize::MAX / 2
    } else {
        isize::MIN / 2
    };
    match model.screen {
        Screen::Editor => editor::update::go_to_end(model, is_last),
        _ => move_cursor(model, by),
    }
}

/// Goes back one level: search, filter, screen. At the fleet, the exit key quits.
pub(super) fn go_back(model: &mut Model, key: Key) -> Vec<Effect> {
    let is_escape = key.code == KeyCode::Esc;
    let before = (model.screen, model.baselines.page);
    match model.screen {
        Screen::Fleet => return fleet::update::go_back(model, key),
        Screen::Agent => agent::update::go_back(model, key),
        Screen::Reset => reset::update::go_back(model),
        Screen::Log => log::update::go_back(model, is_escape),
        Screen::Baselines => baselines::update::go_back(model, is_escape),
        Screen::BaselinePlan => baseline_plan::update::go_back(model),
        Screen::Archives => archives::update::go_back(model, is_escape),
        Screen::Hosts | Screen::Verify => model.go_to_screen(Screen::Fleet),
        Screen::Editor => return editor::update::go_back(model, is_escape),
    }
    if (model.screen, model.baselines.page) == before {
        return Vec::new();
    }
    baselines::update::reload_on_return(model)
}

/// Goes to the previous screen.
pub(super) fn go_to_previous(model: &mut Model) -> Vec<Effect> {
    let previous = model.previous_screen.unwrap_or(Screen::Fleet);
    return_to(model, previous)
}

/// Goes to a screen that was shown before, and reads again what may have changed there.
pub(super) fn return_to(model: &mut Model, screen: Screen) -> Vec<Effect> {
    model.go_to_screen(screen);
    if screen == Screen::Hosts {
        hosts::update::request_settings(model)
    } else {
        baselines::update::reload_on_return(model)
    }
}

/// Returns the ages on the current screen.
pub(super) fn visible_ages(model: &Model) -> Vec<String> {
    let mut ages = log::view::schedule::visible_ages(model);
    ages.extend(match model.screen {
        Screen::Fleet => fleet::update::visible_ages(model),
        Screen::Agent => agent::update::visible_ages(model),
        Screen::Hosts => hosts::update::visible_ages(model),
        Screen::Log => log::update::visible_ages(model),
        Screen::Verify => verify::update::visible_ages(model),
        Screen::Archives => archives::view::visible_ages(model),
        Screen::Baselines => baselines::update::visible_ages(model),
        Screen::Reset | Screen::BaselinePlan => undo_offer_age(model).into_iter().collect(),
        Screen::Editor => Vec::new(),
    });
    ages
}

/// Starts a search of the screen. That of the archives continues the last query.
pub(super) fn begin_search(model: &mut Model) {
    let (old, is_kept) = match model.key_context() {
        KeyContext::Log | KeyContext::Schedule => (std::mem::take(&mut model.log.query), false),
        KeyContext::Archives => (model.archives.query.clone(), true),
        _ if model.screen == Screen::Editor => (editor::update::begin_search(model), false),
        KeyContext::Agent if model.agent.is_item_list() => return begin_filter(model),
        _ => (begin_text_search(model), false),
    };
    model.input_line = Some(Prompt {
        text: if is_kept { old.clone() } else { String::new() },
        ..Prompt::replacing(PromptPurpose::Search, old)
    });
}

/// Opens the input line of the screen's filter, which begins empty.
pub(super) fn begin_filter(model: &mut Model) {
    let screen = model.screen;
    let old = match screen {
        Screen::Agent => &model.agent.memory.items.filter,
        Screen::Baselines => &model.baselines.filter,
        _ => &model.fleet.filter,
    };
    let prompt = Prompt::replacing(PromptPurpose::Filter(screen), old.clone());
    model.input_line = Some(prompt);
    set_filter(model, screen, String::new());
}

/// Sets the filter of a screen.
pub(super) fn set_filter(model: &mut Model, screen: Screen, filter: String) {
    match screen {
        Screen::Agent => agent::update::memory::set_filter(model, filter),
        Screen::Baselines => model.baselines.filter = filter,
        _ => fleet::update::set_filter(model, filter),
    }
}

/// Returns the query of the search on this screen.
pub(super) fn search_query(model: &Model) -> &str {
    match model.screen {
        Screen::Log => &model.log.query,
        Screen::Editor => model.editor.as_ref().map_or("", |editor| &editor.query),
        Screen::Archives if model.archives.page == ArchivesPage::List => &model.archives.query,
        _ => &visible_pane(model).query,
    }
}

/// Sets the query of the screen's search.
pub(super) fn set_query(model: &mut Model, query: String) {
    match model.key_context() {
        KeyContext::Log | KeyContext::Schedule => model.log.query = query,
        KeyContext::Archives => archives::update::set_query(model, query),
        _ if model.screen == Screen::Editor => editor::update::set_query(model, query),
        _ => set_text_query(model, &query),
    }
}

/// Ends the typing of a query. Returns the number of hits.
pub(super) fn finish_search(model: &mut Model) -> usize {
    match model.screen {
        Screen::Log => log::update::finish_search(model),
        Screen::Editor => editor::update::finish_search(model),
        Screen::Archives if model.archives.page == ArchivesPage::List => 0,
        _ => visible_pane(model).hits.len(),
    }
}

/// Goes to the next or previous hit of the screen's search.
pub(super) fn go_to_next_hit(model: &mut Model, is_forward: bool) {
    match model.screen {
        Screen::Log => log::update::go_to_next_hit(model, is_forward),
        Screen::Editor => editor::update::go_to_next_hit(model, is_forward),
        _ => visible_text::go_to_next_hit(model, is_forward),
    }
}
