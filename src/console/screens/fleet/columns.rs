//! The columns of the fleet: the table of all columns, and the layout of those that fit the screen.

/// A column of the fleet. Cursor, mark and glyph of the state come before the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the table below says what each one shows")]
pub enum FleetColumn {
    State,
    Agent,
    Host,
    Size,
    Limit,
    Scratch,
    DriftLines,
    Changed,
    LastRun,
    Trend,
    Reason,
}

/// Name, heading and width of a column.
#[derive(Clone, Copy, Debug)]
pub struct ColumnLayout {
    /// The column.
    pub column: FleetColumn,
    /// Its name in the preferences.
    pub id: &'static str,
    /// Its heading.
    pub heading: &'static str,
    /// Its usual width in cells. Host and last run are as wide as their contents; agent and reason
    /// take the remaining space.
    pub width: u16,
    /// Width of the screen from which the column is always shown; on narrower screens it is shown
    /// if there is room. As the screen shrinks, the least needed column goes first.
    pub min_screen_width: u16,
    /// Whether its cells are right-aligned.
    pub is_right_aligned: bool,
}

macro_rules! column_table {
    ($($column:ident $id:literal $heading:literal $width:literal $min_width:literal $right_aligned:literal;)*) => {
        /// All columns in their default order.
        pub const COLUMN_LAYOUTS: &[ColumnLayout] = &[$(ColumnLayout {
            column: FleetColumn::$column,
            id: $id,
            heading: $heading,
            width: $width,
            min_screen_width: $min_width,
            is_right_aligned: $right_aligned,
        }),*];

        impl FleetColumn {
            /// Returns the column's layout.
            pub fn layout(self) -> &'static ColumnLayout {
                &COLUMN_LAYOUTS[self as usize]
            }
        }
    };
}

column_table! {
    State      "state"    "STATE"    9  0   false;
    Agent      "agent"    "AGENT"    8  0   false;
    Host       "host"     "HOST"     8  110 false;
    Size       "size"     "SIZE"     7  96  true;
    Limit      "limit"    "LIM"      5  100 true;
    Scratch    "scratch"  "SCRATCH"  7  0   true;
    DriftLines "above"    "ABOVE---" 8  0   true;
    Changed    "changed"  "CHANGED"  7  0   true;
    LastRun    "last-run" "LAST RUN" 12 72  true;
    Trend      "trend"    "TREND"    8  124 true;
    Reason     "why"      "WHY"      22 100 false;
}

/// Returns the columns that are shown by default.
pub fn default_columns() -> Vec<FleetColumn> {
    let columns = COLUMN_LAYOUTS.iter().map(|shape| shape.column);
    columns
        .filter(|column| *column != FleetColumn::Trend)
        .collect()
}

/// Position of a column on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnSpan {
    /// The column.
    pub column: FleetColumn,
    /// Its first cell.
    pub x: u16,
    /// Its width in cells.
    pub width: u16,
}

/// First cell of the first column, behind cursor, mark and glyph.
const FIRST_COLUMN: u16 = 5;

/// Most cells that a long name takes from other columns.
const MAX_RESERVED_NAME_CELLS: u16 = 24;

/// Figures that go before names, hosts and reasons are shortened.
const FIGURES_DROPPED_FIRST: [FleetColumn; 3] =
    [FleetColumn::Trend, FleetColumn::Limit, FleetColumn::Size];

/// Cells that the reason keeps before figures are shown, where the screen is wide enough.
const MAX_RESERVED_REASON_CELLS: u16 = 34;

/// Cells of a screen that the reason leaves to all other columns.
const CELLS_BESIDE_REASON: u16 = 86;

/// Returns the cells that the reason keeps, however much other columns need.
fn reserved_reason_cells(screen: u16) -> u16 {
    let least = FleetColumn::Reason.layout().width;
    let spare = screen.saturating_sub(CELLS_BESIDE_REASON);
    spare.clamp(least, MAX_RESERVED_REASON_CELLS)
}

/// Cells that names keep, however long the hosts are.
const MIN_NAME_CELLS: u16 = 15;

/// Cells that the contents of a fleet's rows need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CellWidths {
    /// The longest name of an agent.
    pub agent: u16,
    /// The longest host.
    pub host: u16,
    /// The longest sign of a last run, with its time.
    pub last_run: u16,
    /// Whether an agent is on another host; otherwise the host column says nothing, and is hidden.
    pub has_remote_agents: bool,
}

/// Lays out the columns that fit a screen.
pub fn lay_out_columns(
    columns: &[FleetColumn],
    screen: u16,
    cell_widths: CellWidths,
) -> Vec<ColumnSpan> {
    let heading = FleetColumn::LastRun.layout().heading;
    let last_run = cell_widths.last_run.max(heading.len() as u16);
    let fit = ColumnFit {
        screen,
        agent: cell_widths.agent,
        last_run,
        host: host_cells(columns, screen, cell_widths, last_run),
    };
    let columns: Vec<FleetColumn> = columns
        .iter()
        .copied()
        .filter(|column| *column != FleetColumn::Host || cell_widths.has_remote_agents)
        .collect();
    let mut shown = fit.choose_columns(&columns);
    fit.drop_figures(&mut shown);
    fit.spans(&shown)
}

/// Width of a screen, and of the contents that the layout depends on, in cells.
struct ColumnFit {
    screen: u16,
    agent: u16,
    last_run: u16,
    /// `None` if the host column is shown only if it fits.
    host: Option<u16>,
}

impl ColumnFit {
    /// Returns the cells that a column needs, with the blank behind it.
    fn needed_cells(&self, column: FleetColumn) -> u16 {
        let usual = column.layout().width;
        1 + match column {
            FleetColumn::Agent => self.agent.clamp(usual, MAX_RESERVED_NAME_CELLS),
            FleetColumn::Host => self.host.unwrap_or(usual),
            // The set of columns must not depend on the observations read so far.
            FleetColumn::LastRun => self.last_run.max(usual),
            FleetColumn::Reason => reserved_reason_cells(self.screen),
            _ => usual,
        }
    }

    fn is_always_shown(&self, column: FleetColumn) -> bool {
        match column {
            FleetColumn::Host => self.host.is_some(),
            other => self.screen >= other.layout().min_screen_width,
        }
    }

    /// Returns the columns that this width guarantees, and the others if they fit.
    fn choose_columns(&self, columns: &[FleetColumn]) -> Vec<FleetColumn> {
        let (mut shown, mut optional): (Vec<_>, Vec<_>) = columns
            .iter()
            .partition::<Vec<FleetColumn>, _>(|column| self.is_always_shown(**column));
        let used: u16 = shown.iter().map(|column| self.needed_cells(*column)).sum();
        let mut free = self.screen.saturating_sub(FIRST_COLUMN + used);
        optional.sort_by_key(|column| column.layout().min_screen_width);
        let mut is_full = false;
        for column in optional {
            let needed = self.needed_cells(column);
            if !is_full && needed <= free {
                free -= needed;
                shown.push(column);
            } else {
                // Once a column does not fit, no less needed one is shown. The reason is excepted:
                // it needs more cells than any other.
                is_full |= column != FleetColumn::Reason;
            }
        }
        let ordered = columns.iter().copied();
        ordered.filter(|column| shown.contains(column)).collect()
    }

    fn width(&self, column: FleetColumn) -> u16 {
        match column {
            FleetColumn::LastRun => self.last_run,
            other => self.needed_cells(other) - 1,
        }
    }

    /// Returns the cells that other columns leave to the agent's name.
    fn name_room(&self, shown: &[FleetColumn]) -> u16 {
        let others = shown.iter().filter(|column| **column != FleetColumn::Agent);
        let others: u16 = others.map(|column| self.width(*column) + 1).sum();
        self.screen.saturating_sub(FIRST_COLUMN + others)
    }

    /// Drops less important figures before names are shortened.
    fn drop_figures(&self, shown: &mut Vec<FleetColumn>) {
        for column in FIGURES_DROPPED_FIRST {
            if self.name_room(shown) <= self.agent.min(MAX_RESERVED_NAME_CELLS) {
                shown.retain(|it| *it != column);
            }
        }
    }

    fn spans(&self, shown: &[FleetColumn]) -> Vec<ColumnSpan> {
        let min_name = FleetColumn::Agent.layout().width;
        let max_name = self.name_room(shown).max(min_name);
        let name = (self.agent + 1).clamp(min_name, max_name);
        let mut x = FIRST_COLUMN;
        let span_of = |column: &FleetColumn| {
            let width = match *column {
                FleetColumn::Agent => name - 1,
                FleetColumn::Reason => self.screen.saturating_sub(x + 1),
                other => self.width(other),
            };
            // One more blank before the reason, which is a sentence.
            let gap = u16::from(*column == FleetColumn::Reason);
            let span = ColumnSpan {
                column: *column,
                x: x + gap,
                width,
            };
            x += gap + width + 1;
            span
        };
        shown.iter().map(span_of).collect()
    }
}

/// Returns the width of the host column, if the screen has room for it. Hosts are kept whole before
/// names: names keep enough to be recognised.
fn host_cells(
    columns: &[FleetColumn],
    screen: u16,
    cell_widths: CellWidths,
    last_run_cells: u16,
) -> Option<u16> {
    let shape = FleetColumn::Host.layout();
    let used = |column: &FleetColumn| match column {
        FleetColumn::Agent => cell_widths.agent.min(MIN_NAME_CELLS) + 1,
        FleetColumn::LastRun => last_run_cells + 1,
        FleetColumn::Reason => reserved_reason_cells(screen) + 1,
        other => other.layout().width + 1,
    };
    let is_kept = |column: &&FleetColumn| {
        **column != FleetColumn::Host && !FIGURES_DROPPED_FIRST.contains(*column)
    };
    let others = columns.iter().filter(is_kept);
    let others = others.filter(|column| screen >= column.layout().min_screen_width);
    let others: u16 = others.map(used).sum();
    let spare = screen.saturating_sub(FIRST_COLUMN + others + 1);
    let needed = cell_widths.host.min(shape.width);
    let has_room = screen >= shape.min_screen_width || spare >= needed;
    let fits = cell_widths.has_remote_agents && has_room;
    let width = cell_widths.host.min(spare.max(shape.width));
    fits.then_some(width.max(shape.heading.len() as u16))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown_columns(columns: &[FleetColumn], screen: u16, longest: u16) -> Vec<&'static str> {
        let longest = CellWidths {
            agent: longest,
            ..CellWidths::default()
        };
        let spans = lay_out_columns(columns, screen, longest);
        spans.iter().map(|it| it.column.layout().id).collect()
    }

    #[test]
    fn column_table_is_in_enum_order() {
        for shape in COLUMN_LAYOUTS {
            let found = shape.column.layout().id;
            assert_eq!(
                found, shape.id,
                "the table is not in the order of FleetColumn"
            );
        }
    }

    #[test]
    fn least_needed_column_is_dropped_first() {
        let usual = default_columns();
        let all_but_host = usual.iter().filter(|it| **it != FleetColumn::Host);
        assert_eq!(shown_columns(&usual, 120, 15).len(), all_but_host.count());
        let narrow = ["state", "agent", "scratch", "above", "changed"];
        assert_eq!(shown_columns(&usual, 60, 15), narrow);
        let wider = [&narrow[..2], &["size"], &narrow[2..], &["last-run"]].concat();
        assert_eq!(shown_columns(&usual, 80, 15), wider);
    }

    #[test]
    fn agent_names_are_whole_before_sizes_show() {
        for screen in 60..=200 {
            let longest = CellWidths {
                agent: 20,
                last_run: 8,
                ..CellWidths::default()
            };
            let spans = lay_out_columns(&default_columns(), screen, longest);
            let of = |column| spans.iter().find(|it| it.column == column);
            let names = of(FleetColumn::Agent).map_or(0, |span| span.width);
            let sizes = of(FleetColumn::Size).or(of(FleetColumn::Limit));
            assert!(names >= 20 || sizes.is_none(), "{screen}: {spans:?}");
        }
        let usual = default_columns();
        let at_100 = shown_columns(&usual, 100, 15);
        let has = |word| at_100.contains(&word);
        assert!(!has("limit") && has("size") && has("why"), "{at_100:?}");
    }

    #[test]
    fn fitting_columns_are_shown_at_any_width() {
        let few = [
            FleetColumn::Agent,
            FleetColumn::State,
            FleetColumn::Host,
            FleetColumn::Trend,
        ];
        assert_eq!(shown_columns(&few, 60, 15), ["agent", "state", "trend"]);
        let usual = default_columns();
        assert!(shown_columns(&usual, 80, 9).contains(&"size"));
        assert!(!shown_columns(&usual, 80, 24).contains(&"size"));
        let few = [
            FleetColumn::State,
            FleetColumn::Agent,
            FleetColumn::Size,
            FleetColumn::Trend,
            FleetColumn::Reason,
        ];
        assert_eq!(
            shown_columns(&few, 60, 15),
            ["state", "agent", "size", "trend"]
        );
    }

    #[test]
    fn hosts_are_whole_before_names_when_remote() {
        let longest = CellWidths {
            agent: 30,
            host: 7,
            last_run: 12,
            has_remote_agents: true,
        };
        let width = |longest, screen, column| {
            let spans = lay_out_columns(&default_columns(), screen, longest);
            let span = spans.iter().find(|it| it.column == column);
            span.map(|it| it.width)
        };
        assert_eq!(width(longest, 80, FleetColumn::Host), Some(7));
        assert_eq!(width(longest, 80, FleetColumn::Agent), Some(18));
        assert_eq!(width(longest, 80, FleetColumn::LastRun), Some(12));
        let local = CellWidths {
            has_remote_agents: false,
            ..longest
        };
        assert_eq!(width(local, 80, FleetColumn::Host), None);
        let long = CellWidths {
            host: 40,
            ..longest
        };
        assert_eq!(width(long, 160, FleetColumn::Host), Some(40));
        assert!(width(long, 120, FleetColumn::Agent) >= Some(MIN_NAME_CELLS));
    }

    #[test]
    fn reason_keeps_its_room_and_host_goes_when_local() {
        for (agent, is_remote) in [(12, false), (24, false), (24, true)] {
            let cells = CellWidths {
                agent,
                host: 8,
                last_run: 10,
                has_remote_agents: is_remote,
            };
            for screen in 60..=200 {
                let spans = lay_out_columns(&default_columns(), screen, cells);
                let of = |column| spans.iter().find(|it| it.column == column);
                assert!(is_remote || of(FleetColumn::Host).is_none(), "{screen}");
                let reason = of(FleetColumn::Reason).map_or(0, |span| span.width);
                assert!(
                    screen < 120 || reason + 1 >= 34,
                    "{screen} {cells:?}: {spans:?}"
                );
            }
        }
    }

    #[test]
    fn columns_neither_overlap_nor_overflow() {
        let all: Vec<FleetColumn> = COLUMN_LAYOUTS.iter().map(|shape| shape.column).collect();
        let mut turned = all.clone();
        let last = turned.len() - 1;
        turned[..last].reverse();
        for columns in [all, turned, default_columns()] {
            for screen in 60..=200 {
                for (agent, host) in [(1, 0), (8, 30), (15, 5), (40, 9), (120, 250)] {
                    let longest = CellWidths {
                        agent,
                        host,
                        last_run: 17,
                        has_remote_agents: host > 5,
                    };
                    let spans = lay_out_columns(&columns, screen, longest);
                    let what = format!("{screen} {longest:?} {spans:?}");
                    for pair in spans.windows(2) {
                        assert!(pair[0].x + pair[0].width < pair[1].x, "{what}");
                    }
                    let end = spans.last().map(|it| it.x + it.width);
                    assert!(end.is_some_and(|end| end <= screen), "{what}");
                }
            }
        }
    }
}
