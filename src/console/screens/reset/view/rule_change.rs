//! Draws the change of rules that a plan brings, between its list and its footer.

use super::{MIN_VISIBLE_AGENTS, list_height, plan_footer};
use crate::console::frame::draw_text_pane;
use crate::console::model::Model;
use crate::console::screens::reset::rule_change::agents_of_change;
use crate::console::screens::reset::state::{PlanView, ResetStage};
use crate::console::theme::Role;
use crate::console::widgets::canvas::Canvas;

/// Rows of text below which a change of rules is not worth showing.
const MIN_TEXT_ROWS: usize = 3;

/// Returns the rows that the change of rules and its title take of `height` rows.
fn rule_change_rows(model: &Model, view: &PlanView, height: usize) -> usize {
    if !model.reset.has_rule_change() {
        return 0;
    }
    let agents = view.plan.steps.len() + view.plan.skipped.len();
    let list = agents.clamp(1, MIN_VISIBLE_AGENTS.max(height / 3));
    let rest = height.saturating_sub(list);
    if rest > MIN_TEXT_ROWS { rest } else { 0 }
}

/// Draws the change of rules at the bottom of the `height` rows below the headings. Returns the rows
/// that it takes.
pub(super) fn draw(
    model: &Model,
    view: &PlanView,
    canvas: &mut Canvas<'_>,
    height: usize,
) -> usize {
    let rows = rule_change_rows(model, view, height);
    let Some(request) = model
        .reset
        .rule_change
        .request
        .as_ref()
        .filter(|_| rows > 0)
    else {
        return 0;
    };
    let y = 3 + (height - rows) as u16;
    canvas.draw_rule(y);
    let [old, new] = [request.old, request.new].map(|it| it.short_hex(8));
    let agents = agents_of_change(view, request).join(", ");
    let title = format!("rules that change, {old}… -> {new}…, for {agents} ");
    canvas.put_end(1, y, &title, Role::Heading);
    draw_text_pane(model, canvas, y + 1);
    rows
}

impl Model {
    /// Returns the rows of the text of a plan's change of rules.
    pub fn rule_change_height(&self) -> usize {
        let ResetStage::Plan(view) = &self.reset.stage else {
            return 0;
        };
        let footer = plan_footer(self, view).len().saturating_sub(1);
        let height = list_height(self.size.1).saturating_sub(footer);
        rule_change_rows(self, view, height).saturating_sub(1)
    }
}
