//! Draws the details of a plan, between its list and its footer: a change of rules, or of files.

use crate::console::frame::draw_text_pane;
use crate::console::model::Model;
use crate::console::screens::reset::details::agents_of_change;
use crate::console::screens::reset::plan_footer::detail_rows;
use crate::console::screens::reset::state::{PlanDetailsRequest, PlanView};
use crate::console::theme::Role;
use crate::console::widgets::canvas::Canvas;

/// Draws the details at the bottom of the `height` rows below the headings. Returns the rows that they
/// take.
pub(super) fn draw(
    model: &Model,
    view: &PlanView,
    canvas: &mut Canvas<'_>,
    height: usize,
) -> usize {
    let rows = detail_rows(model, view, height);
    let request = model.reset.details.request.as_ref();
    let Some(request) = request.filter(|_| rows > 0) else {
        return 0;
    };
    let y = 3 + (height - rows) as u16;
    canvas.draw_rule(y);
    let title = match request {
        PlanDetailsRequest::Rules(change) => {
            let [old, new] = [change.old, change.new].map(|it| it.short_hex(8));
            let agents = agents_of_change(view, change).join(", ");
            format!("rules that change, {old}… -> {new}…, for {agents} ")
        }
        PlanDetailsRequest::Files(changes) => {
            let summary = super::summarize_files(&changes.files);
            let directory = changes.directory.display();
            format!("files of {} in {directory}: {summary} ", changes.agent)
        }
    };
    canvas.put_end(1, y, &title, Role::Heading);
    draw_text_pane(model, canvas, y + 1);
    rows
}
