package holds

import (
	"slices"

	"github.com/weirhq/weir/dataplane/store"
)

// record is a reservation's record. The zero record stands for no record.
type record struct {
	text        string
	spent       []int64 // never changed in place
	endsMs      int64   // Unix ms
	settled     bool
	settledBy   uint64 // the attempt
	withdrawn   bool
	asked       bool // another call than its maker's has found it
	forgottenMs int64
}

// Knows reports whether there is a record of an ID.
func (g *Group) Knows(id string, nowMs int64) bool {
	return g.stored(&store.Record{ID: id}, nowMs).text != ""
}

// change applies a call to a record. It returns false if another record has the ID.
func (a *applying) change(r *store.Record) (answer store.RecordAnswer, ok bool) {
	before, had := a.records[r.ID]
	was := a.stored(r, a.nowMs)
	stored, own := was.text != "", r.Text == was.text
	next := was
	again := was.settled && r.Settled && r.Attempt != 0 && r.Attempt == was.settledBy
	changed := again
	switch open := !was.settled && a.nowMs < was.endsMs; {
	case !stored && r.Text == "":
		return answer, true
	case !stored && r.Withdraw: // its own call may come later
		next = record{text: r.Text, endsMs: a.nowMs, settled: true, settledBy: r.Attempt, withdrawn: true}
		changed = true
	case !stored:
		next = record{text: r.Text, spent: slices.Clone(r.Spent), endsMs: a.nowMs + r.TTL.Milliseconds(),
			settled: r.Settled, asked: r.Restored}
		changed = true
	case r.Withdraw:
		if own && open && !was.asked {
			next.settled, next.settledBy, next.withdrawn, changed = true, r.Attempt, true, true
		}
	case r.Text != "" && !r.Restored:
		changed = changed || own && !was.withdrawn
		next.asked = was.asked || !own
	default:
		next.asked = was.asked || own || r.Text == ""
		fits := len(r.Spent) == 0 || len(r.Spent) == len(was.spent)
		if fits && (open && r.Text == "" || own && !was.settled) {
			next.spent = larger(was.spent, r.Spent)
			if r.TTL > 0 {
				next.endsMs = max(was.endsMs, a.nowMs+r.TTL.Milliseconds())
			}
			next.settled, next.settledBy, changed = r.Settled, r.Attempt, true
		}
	}
	if next.forgottenMs = next.endsMs + store.HoldKeptFor.Milliseconds(); next.settled && !was.settled {
		next.forgottenMs = a.nowMs + store.HoldKeptFor.Milliseconds()
	} else if was.settled {
		next.forgottenMs = was.forgottenMs
	}
	a.records[r.ID] = next
	a.record = replacedRecord{id: r.ID, had: had, record: before}
	answer = next.answer()
	answer.Changed = changed
	return answer, own || !stored || r.Text == "" || r.Withdraw
}

// replacedRecord is the record before a call changes it.
type replacedRecord struct {
	id     string // "": no record was changed
	had    bool   // there was a record
	record record
}

// putRecordBack restores a record after a refused call.
func (a *applying) putRecordBack() {
	was := &a.record
	switch {
	case was.had:
		was.record.asked = a.records[was.id].asked // noted also for a call that is refused
		a.records[was.id] = was.record
	case was.id != "":
		delete(a.records, was.id)
	}
}

// stored returns the record that a call finds.
func (g *Group) stored(r *store.Record, nowMs int64) record {
	was := g.records[r.ID]
	if was.forgottenMs <= nowMs || was.withdrawn && (was.text != r.Text || r.Restored) {
		return record{}
	}
	return was
}

// answer returns the part of the record that is answered.
func (r record) answer() store.RecordAnswer {
	return store.RecordAnswer{Text: r.text, Spent: slices.Clone(r.spent), EndsMs: r.endsMs, Settled: r.settled}
}

// larger returns the larger of each two amounts.
func larger(a, b []int64) []int64 {
	all := slices.Clone(a)
	for i := range b {
		all[i] = max(a[i], b[i])
	}
	return all
}
