//! The entries of the agent of the example fleet whose memory has the layout `drover`: one cannot be read,
//! and one says that it is another agent's, so the agent is given neither.

/// The agent.
pub(super) const LAYOUT_AGENT: &str = "carrier-scout";

/// Its entries: the path of each below the directory of the memory, and its text.
#[rustfmt::skip]
pub(super) const ENTRIES: [(&str, &str); 8] = [
    ("global/01K94CH8X08KQ2VZ7M4T9XCWBN.md", r"---
id: 01K94CH8X08KQ2VZ7M4T9XCWBN
scope: global
kind: user
summary: Mara reads the morning report on her phone
createdAt: 1762157700000
---

Put the three numbers that changed most into the first lines.

**Why:** Mara reads the report at 07:00, and only its beginning.

**How to apply:** Sort by change, then by merchants affected.
"),
    ("global/01K954JA90PD5RJ0YGH3ESA6FM.md", r"---
id: 01K954JA90PD5RJ0YGH3ESA6FM
scope: global
kind: feedback
summary: Times in reports are UTC, with the word
createdAt: 1762182900000
tags:
  - reports
---

Write every time in UTC, and say so.

**Why:** Two carriers report local times, and a delay of an hour was not one.

**How to apply:** Convert when reading, not when writing.
"),
    ("agents/carrier-scout/01K95WKBN0W1N8TBX4KV7CZQ2H.md", r"---
id: 01K95WKBN0W1N8TBX4KV7CZQ2H
scope: agent
kind: reference
summary: Event codes of siskin are in its format document, chapter 4
createdAt: 1762208100000
agentId: carrier-scout
tags:
  - siskin
---

Look up unknown codes of siskin in `carriers/siskin/format.pdf`, chapter 4.

**Why:** The list on its portal is two years old.

**How to apply:** Quote the page in the ticket.
"),
    ("agents/carrier-scout/01K96MMD10M6GZ3SD9RJ5YEFAP.md", r"---
id: 01K96MMD10M6GZ3SD9RJ5YEFAP
scope: agent
kind: feedback
summary: plover: a silence of 48 minutes is a normal batch
createdAt: 1762233300000
agentId: carrier-scout
tags:
  - plover
  - silence
---

Do not report plover as silent before 60 minutes.

**Why:** It sends its events in batches of 48 minutes.

**How to apply:** Compare with the batch times in `carriers/plover/batches.csv`.
"),
    ("agents/carrier-scout/01K97CNED02CQH7XW0VBKN4T8Z.md", r"---
id: 01K97CNED02CQH7XW0VBKN4T8Z
scope: agent
kind: project
summary: Move of heron to the new gateway ends on Friday
createdAt: 1762258500000
agentId: carrier-scout
---

Count events of heron on both gateways until Friday.

**Why:** Half of its depots send to the old one.

**How to apply:** Add the counters of `gw-1` and `gw-2`.
"),
    ("agents/carrier-scout/01K984PFS0EAF5PJ9R3DSG6MYH.md", r"---
id: 01K984PFS0EAF5PJ9R3DSG6MYH
scope: agent
kind: feedback
summary: Late scans of avocet are late only after two hours
createdAt: 1762283700000
agentId: dock-watch
tags:
  - avocet
---

Open an issue about avocet only where scans are late by two hours.

**Why:** Its depots upload once an hour.

**How to apply:** Group them by depot.
"),
    ("agents/customs-clerk/01K98WQH50T0ZB8VKXN1CW4Q7R.md", r"---
id: 01K98WQH50T0ZB8VKXN1CW4Q7R
scope: agent
kind: reference
summary: Tariff numbers of returns are in annex B
createdAt: 1762308900000
agentId: customs-clerk
---

Use annex B for returns.

**Why:** Annex A has the numbers for sales.

**How to apply:** Name the annex in the form.
"),
    ("runs/night-0412/01K99MRJH05YDG9HSJ2AMEP6FZ.md", r"---
id: 01K99MRJH05YDG9HSJ2AMEP6FZ
scope: run
kind: project
summary: dunlin was read up to event 1840
createdAt: 1762334100000
agentId: carrier-scout
runId: night-0412
---

Go on with dunlin at event 1841.

**Why:** The run was paused there.

**How to apply:** Read its log from that line.
"),
];
