//! Parts that screens are made of, each with its state, which is pure, and its drawing.

pub(in crate::console) mod canvas;
pub mod list_pane;
pub mod plan_pane;
pub mod prompt;
pub mod text_pane;
