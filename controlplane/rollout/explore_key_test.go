package rollout

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/tunings"
)

// pastMs is the greatest age at which moments in the past are distinguished.
const pastMs = 4_000

// key identifies equal worlds. Times count from now, epochs by their order, and texts for people not at all: two worlds
// with the same key have the same future.
type key struct {
	b      []byte
	nowMs  int64
	epochs map[string][]int64
}

func (k *key) n(values ...int64) {
	for _, v := range values {
		k.b = binary.AppendVarint(k.b, v)
	}
}

func (k *key) s(values ...string) {
	for _, v := range values {
		k.n(int64(len(v)))
		k.b = append(k.b, v...)
	}
}

func (k *key) is(values ...bool) {
	for _, v := range values {
		if v {
			k.n(1)
		} else {
			k.n(0)
		}
	}
}

func (k *key) at(moments ...int64) {
	for _, ms := range moments {
		if ms == 0 {
			k.n(pastMs + 1)
		} else {
			k.n(min(max(ms-k.nowMs, -pastMs), pastMs))
		}
	}
}

func (k *key) epoch(id string, epoch int64) {
	i, _ := slices.BinarySearch(k.epochs[id], epoch)
	k.n(int64(i))
}

// key returns the world's key.
func (w *world) key() []byte {
	k := &key{nowMs: w.nowMs, epochs: w.epochs()}
	k.n(int64(w.left.starts), int64(w.left.orders), int64(w.left.faults))
	k.is(w.lost)
	for _, row := range w.rows {
		k.s(row.ID)
		k.n(row.Over, int64(row.Document[2]))
		k.s(row.Document[:14])
	}
	for _, row := range w.saves {
		k.s(row.ID)
		if r := w.rollouts[row.ID]; r == nil || r.Saved != row.Saved { // otherwise it equals the document, which follows
			_, standing, _ := strings.Cut(row.State, `"standing":"`)
			k.s(string(row.Phase), standing[:min(len(standing), 32)])
		}
	}
	k.is(w.backup != nil)
	for _, n := range w.nodes {
		k.s(n.id, string(n.how))
		k.n(n.runs, n.says, n.trial, n.saysTrial)
		k.at(n.seenMs, n.startMs, n.movedMs, n.untilMs)
	}
	for _, t := range w.trials {
		k.s(t.ID, t.Document[:14])
		k.n(t.Over, t.Below)
		k.at(t.endsMs)
	}
	for _, o := range w.stored.Overrides {
		k.s(o.Pattern)
		k.n(o.Limit)
	}
	for _, id := range slices.Sorted(maps.Keys(w.records)) {
		k.s(id)
		k.is(w.records[id].kept, w.records[id].reverted)
	}
	k.s(w.lock.Active)
	k.epoch(w.lock.Active, w.lock.Since)
	for _, id := range slices.Sorted(maps.Keys(w.rollouts)) {
		k.rollout(w.rollouts[id])
	}
	k.letters(w)
	return k.b
}

// epochs returns the epochs of each rollout that matter, in order.
func (w *world) epochs() map[string][]int64 {
	all := map[string][]int64{}
	add := func(id string, epochs ...int64) { all[id] = append(all[id], epochs...) }
	add(w.lock.Active, w.lock.Since)
	for id, r := range w.rollouts {
		add(id, r.Epoch, r.Asked)
	}
	of := func(l letter) {
		add(l.to, l.epoch, l.order.Asked)
		add(l.summary.ID, l.summary.Epoch)
	}
	for _, l := range w.letters {
		of(l)
	}
	for _, c := range w.stopped {
		of(c.letter)
	}
	for id := range all {
		slices.Sort(all[id])
		all[id] = slices.Compact(all[id])
	}
	return all
}

func (k *key) summary(s Summary) {
	k.s(s.ID, string(s.Phase))
	k.is(s.EndedMs > 0)
	k.epoch(s.ID, s.Epoch)
}

func (k *key) rollout(r *Rollout) {
	k.s(r.ID, string(r.Phase), string(r.Wanted), subjectOf(r.Spec))
	k.n(int64(r.Stage), int64(len(r.Stages)))
	k.epoch(r.ID, r.Epoch)
	k.epoch(r.ID, r.Asked)
	k.is(r.Keeps, r.TrialsEnded, r.Paused != nil, r.Waiting == clockJumped)
	for _, a := range r.Approvals {
		k.s(a.Actor, a.Evidence)
		k.at(a.AtMs)
	}
	k.at(r.EndedMs, r.MovedMs, r.DueMs, r.SinceMs, r.TimerMs, r.StartedMs)
	k.n(int64(r.Blind), r.Bake.WatchedMs, r.Bake.SpentMs)
	k.at(r.Clocks.OwnMs, r.Clocks.DatabaseMs, r.Clocks.JumpedMs)
	k.is(r.Kept, r.Reverted)
	k.n(int64(len(r.Shadows)))
	for _, t := range slices.Concat(r.Touched, r.Shadows) {
		k.s(t.Region)
		k.n(t.Over, t.Below, t.Trial, t.Applied, t.Reverted, t.Newer)
	}
	for _, w := range r.Watch {
		k.s(w.Region)
		k.n(int64(w.Stage))
		k.is(w.Whole, w.Measured)
		if w.Share != nil {
			k.n(w.Share.From, w.Share.Below)
		}
		k.at(w.BucketMs)
		k.n(int64(w.Unrelayed), int64(w.Unmeasured))
		for _, n := range w.Nodes {
			k.s(n.ID)
			k.is(n.Came, n.Gone, n.Before[0] > 0)
			k.at(n.StartedMs, n.SentMs, n.SeenMs)
			k.at(n.Restarts...)
		}
	}
}

// letters adds the messages, in any order, and the stopped calls with the answers that they have read.
func (k *key) letters(w *world) {
	var all []string
	for _, l := range w.letters {
		all = append(all, fmt.Sprint(string(k.letter(l)), w.done[fmt.Sprint("approval ", l.nonce)]))
	}
	slices.Sort(all)
	k.s(all...)
	for _, c := range w.stopped {
		k.s(string(k.letter(c.letter)))
		for _, a := range c.answers {
			k.answer(a)
		}
	}
}

func (k *key) letter(l letter) []byte {
	own := key{nowMs: k.nowMs, epochs: k.epochs}
	own.s(l.to, l.what, string(l.order.Action), l.order.By.Actor, l.order.Evidence, l.start.ID)
	if l.start.ID != "" {
		own.s(subjectOf(l.start.Spec))
	}
	own.at(l.dueMs)
	own.epoch(l.to, l.epoch)
	own.epoch(l.to, l.order.Asked)
	own.n(int64(l.order.Stage), int64(len(l.traces)), int64(l.nonce))
	own.is(l.again)
	own.summary(l.summary)
	return own.b
}

func (k *key) answer(a answered) {
	k.is(a.err == nil)
	switch v := a.value.(type) {
	case int64:
		k.at(v)
	case fleet.Look:
		k.at(v.AtMs)
		for _, n := range v.Nodes {
			k.s(n.ID)
			k.n(n.Version, n.Trial)
			k.at(n.SeenMs, n.StartedMs)
		}
	case tunings.TrialsWritten:
		k.n(v.Numbers...)
		k.is(v.Refused != nil)
	case tunings.TrialsRenewed:
		k.is(v.Ended != nil)
	case []int64:
		k.n(v...)
	case tunings.Written:
		k.n(v.Versions...)
		k.is(v.Refused != nil)
	case []tunings.RegionTuning:
		for _, t := range v {
			k.n(t.Version)
		}
	case Rollout:
		if v.ID != "" {
			k.s(v.ID, string(v.Phase))
			k.epoch(v.ID, v.Epoch)
		}
	case []Trace:
		k.n(int64(len(v)))
	case []string:
		k.s(v...)
	case LimitsWritten:
		k.is(v.Refused != "", v.Left != "")
	case string:
		k.is(v == "")
	}
}
