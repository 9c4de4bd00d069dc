//! What connects the console to the world: the terminal, the input thread, the event loop, and the
//! threads that execute effects. Beside it only `preferences` and `theme` read files; the rest of the
//! console computes.

pub(in crate::console) mod effect;
pub(in crate::console) mod event_loop;
pub mod external_copy;
pub mod external_tools;
pub(in crate::console) mod input;
pub mod terminal;
pub mod view_state;
