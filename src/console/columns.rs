//! The columns of the fleet: which there are, and which of them fit.

/// A column. Cursor, mark and the sign of the state stand before the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the table below says what each one shows")]
pub enum Column {
    State,
    Agent,
    Host,
    Size,
    Limit,
    Scratch,
    Above,
    Changed,
    LastRun,
    Trend,
    Why,
}

/// How a column looks.
#[derive(Clone, Copy, Debug)]
pub struct ColumnLayout {
    /// The column.
    pub column: Column,
    /// Its name in the preferences.
    pub word: &'static str,
    /// Its head.
    pub head: &'static str,
    /// Its cells as a rule: host and last run are as wide as what they hold, agent and
    /// why take what is left.
    pub width: u16,
    /// From this width of the screen on it is shown in any case; below, where there
    /// happens to be room. As the screen shrinks the least needed goes first.
    pub from: u16,
    /// Whether it ends at its edge instead of beginning there.
    pub right: bool,
}

macro_rules! shapes {
    ($($column:ident $word:literal $head:literal $width:literal $from:literal $right:literal;)*) => {
        /// All columns, in their usual order.
        pub const SHAPES: &[ColumnLayout] = &[$(ColumnLayout {
            column: Column::$column,
            word: $word,
            head: $head,
            width: $width,
            from: $from,
            right: $right,
        }),*];

        impl Column {
            /// How it looks.
            pub fn shape(self) -> &'static ColumnLayout {
                &SHAPES[self as usize]
            }
        }
    };
}

shapes! {
    State   "state"    "STATE"    9  0   false;
    Agent   "agent"    "AGENT"    8  0   false;
    Host    "host"     "HOST"     8  110 false;
    Size    "size"     "SIZE"     7  96  true;
    Limit   "limit"    "LIM"      5  100 true;
    Scratch "scratch"  "SCRATCH"  7  0   true;
    Above   "above"    "ABOVE---" 8  0   true;
    Changed "changed"  "CHANGED"  7  0   true;
    LastRun "last-run" "LAST RUN" 17 72  true;
    Trend   "trend"    "TREND"    8  124 true;
    Why     "why"      "WHY"      22 100 false;
}

/// The columns unless the operator has others: all but the trend.
pub fn usual() -> Vec<Column> {
    let columns = SHAPES.iter().map(|shape| shape.column);
    columns.filter(|column| *column != Column::Trend).collect()
}

/// Where a column begins, and how many cells it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnSpan {
    /// The column.
    pub column: Column,
    /// Its first cell.
    pub x: u16,
    /// Its cells.
    pub width: u16,
}

/// Where the first column begins, behind cursor, mark and sign.
const FIRST_COLUMN: u16 = 5;

/// Long names are not what all columns wait for.
const NAMES: u16 = 24;

/// What names keep, however long the hosts are.
const KNOWN: u16 = 15;

/// How many cells of a fleet's rows are needed to show them whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CellWidths {
    /// The longest name of an agent.
    pub agent: u16,
    /// The longest host.
    pub host: u16,
    /// The longest word about a last run, with its time.
    pub run: u16,
    /// Whether an agent is on another host, so that hosts tell something.
    pub remote: bool,
}

/// Places the columns that a screen has room for.
pub fn places(columns: &[Column], screen: u16, longest: CellWidths) -> Vec<ColumnSpan> {
    let run = longest.run.max(Column::LastRun.shape().head.len() as u16);
    let host = host(columns, screen, longest, run);
    let needed = |column: &Column| match column {
        Column::Agent => longest.agent.clamp(Column::Agent.shape().width, NAMES) + 1,
        Column::Host => host.unwrap_or(Column::Host.shape().width) + 1,
        // What is shown does not depend on what was read so far.
        Column::LastRun => run.max(Column::LastRun.shape().width) + 1,
        other => other.shape().width + 1,
    };
    let wide = |column: &Column| match column {
        Column::Host => host.is_some(),
        other => screen >= other.shape().from,
    };
    let used: u16 = columns.iter().filter(|it| wide(it)).map(needed).sum();
    let mut free = screen.saturating_sub(FIRST_COLUMN + used);
    // What a screen like this has no room for, as a rule, may fit all the same.
    let mut more: Vec<Column> = columns.iter().copied().filter(|it| !wide(it)).collect();
    more.sort_by_key(|column| column.shape().from);
    let mut full = false;
    more.retain(|column| {
        let fits = !full && needed(column) <= free;
        // Nothing less needed takes the place of what did not fit, but for that of a
        // sentence, which needs more than any other.
        full |= !fits && *column != Column::Why;
        free -= if fits { needed(column) } else { 0 };
        fits
    });
    let shown = columns.iter().filter(|it| wide(it) || more.contains(it));
    let mut shown: Vec<Column> = shown.copied().collect();
    let width = |column: Column| match column {
        Column::LastRun => run,
        other => needed(&other) - 1,
    };
    let room = |shown: &[Column]| {
        let others = shown.iter().filter(|column| **column != Column::Agent);
        let others: u16 = others.map(|column| width(*column) + 1).sum();
        screen.saturating_sub(FIRST_COLUMN + others)
    };
    // Before a name is shortened, figures that matter less than it go.
    for column in [Column::Trend, Column::Limit, Column::Size] {
        if room(&shown) <= longest.agent.min(NAMES) {
            shown.retain(|it| *it != column);
        }
    }
    let least = Column::Agent.shape().width;
    let names = (longest.agent + 1).clamp(least, room(&shown).max(least));
    let mut x = FIRST_COLUMN;
    let place = |column: Column| {
        let width = match column {
            Column::Agent => names - 1,
            Column::Why => screen.saturating_sub(x + 1),
            other => width(other),
        };
        // One more blank before what is a sentence.
        let gap = u16::from(column == Column::Why);
        let place = ColumnSpan {
            column,
            x: x + gap,
            width,
        };
        x += gap + width + 1;
        place
    };
    shown.into_iter().map(place).collect()
}

/// The cells of the hosts where a screen has room for them. Of names and hosts,
/// hosts are whole first: of a name enough is left to know it by.
fn host(columns: &[Column], screen: u16, longest: CellWidths, run: u16) -> Option<u16> {
    let shape = Column::Host.shape();
    let used = |column: &Column| match column {
        Column::Agent => longest.agent.min(KNOWN) + 1,
        Column::LastRun => run + 1,
        other => other.shape().width + 1,
    };
    let others = columns.iter().filter(|column| **column != Column::Host);
    let others = others.filter(|column| screen >= column.shape().from);
    let others: u16 = others.map(used).sum();
    let spare = screen.saturating_sub(FIRST_COLUMN + others + 1);
    let needed = longest.host.min(shape.width);
    let fits = screen >= shape.from || (longest.remote && spare >= needed);
    let width = longest.host.min(spare.max(shape.width));
    fits.then_some(width.max(shape.head.len() as u16))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(columns: &[Column], screen: u16, longest: u16) -> Vec<&'static str> {
        let longest = CellWidths {
            agent: longest,
            ..CellWidths::default()
        };
        let places = places(columns, screen, longest);
        places.iter().map(|it| it.column.shape().word).collect()
    }

    #[test]
    fn the_table_is_in_the_order_of_the_columns() {
        for shape in SHAPES {
            assert_eq!(shape.column.shape().word, shape.word);
        }
    }

    #[test]
    fn the_least_needed_goes_first_as_the_screen_shrinks() {
        let usual = usual();
        assert_eq!(shown(&usual, 120, 15).len(), 10);
        assert!(!shown(&usual, 109, 16).contains(&"host"));
        let narrow = ["state", "agent", "scratch", "above", "changed", "last-run"];
        assert_eq!(shown(&usual, 80, 15), narrow);
        assert_eq!(shown(&usual, 60, 15), narrow[..5]);
    }

    #[test]
    fn names_are_whole_before_sizes_and_limits_are_shown() {
        for screen in 60..=200 {
            let longest = CellWidths {
                agent: 20,
                run: 8,
                ..CellWidths::default()
            };
            let places = places(&usual(), screen, longest);
            let of = |column| places.iter().find(|it| it.column == column);
            let names = of(Column::Agent).map_or(0, |place| place.width);
            let sizes = of(Column::Size).or(of(Column::Limit));
            assert!(names >= 20 || sizes.is_none(), "{screen}: {places:?}");
        }
        let usual = usual();
        let at_100 = shown(&usual, 100, 15);
        let has = |word| at_100.contains(&word);
        assert!(!has("limit") && has("size") && has("why"), "{at_100:?}");
    }

    #[test]
    fn what_fits_is_shown_however_narrow_the_screen_is() {
        let few = [Column::Agent, Column::State, Column::Host, Column::Trend];
        assert_eq!(shown(&few, 60, 15), ["agent", "state", "host", "trend"]);
        let usual = usual();
        assert!(shown(&usual, 80, 9).contains(&"size"));
        assert!(!shown(&usual, 80, 24).contains(&"size"));
        let few = [
            Column::State,
            Column::Agent,
            Column::Size,
            Column::Trend,
            Column::Why,
        ];
        assert_eq!(shown(&few, 60, 15), ["state", "agent", "size", "trend"]);
    }

    #[test]
    fn hosts_are_whole_before_names_where_they_tell_something() {
        let longest = CellWidths {
            agent: 30,
            host: 7,
            run: 12,
            remote: true,
        };
        let width = |longest, screen, column| {
            let places = places(&usual(), screen, longest);
            let place = places.iter().find(|it| it.column == column);
            place.map(|it| it.width)
        };
        assert_eq!(width(longest, 80, Column::Host), Some(7));
        assert_eq!(width(longest, 80, Column::Agent), Some(18));
        assert_eq!(width(longest, 80, Column::LastRun), Some(12));
        let local = CellWidths {
            remote: false,
            ..longest
        };
        assert_eq!(width(local, 80, Column::Host), None);
        let long = CellWidths {
            host: 40,
            ..longest
        };
        assert_eq!(width(long, 160, Column::Host), Some(40));
        assert!(width(long, 120, Column::Agent) >= Some(KNOWN));
    }

    #[test]
    fn no_column_reaches_into_another_or_over_the_edge() {
        let all: Vec<Column> = SHAPES.iter().map(|shape| shape.column).collect();
        let mut turned = all.clone();
        turned[..10].reverse();
        for columns in [all, turned, usual()] {
            for screen in 60..=200 {
                for (agent, host) in [(1, 0), (8, 30), (15, 5), (40, 9), (120, 250)] {
                    let longest = CellWidths {
                        agent,
                        host,
                        run: 17,
                        remote: host > 5,
                    };
                    let places = places(&columns, screen, longest);
                    let what = format!("{screen} {longest:?} {places:?}");
                    for pair in places.windows(2) {
                        assert!(pair[0].x + pair[0].width < pair[1].x, "{what}");
                    }
                    let end = places.last().map(|it| it.x + it.width);
                    assert!(end.is_some_and(|end| end <= screen), "{what}");
                }
            }
        }
    }
}
