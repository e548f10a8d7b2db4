package auditchain

import "fmt"

// Broken is the first entry that does not fit into the chain.
type Broken struct {
	ID  uint64 // of the entry, which may be a deleted entry
	Why string
}

func (b *Broken) Error() string {
	return fmt.Sprintf("the audit log was altered: entry %d %s", b.ID, b.Why)
}

// Verifier walks a log. Call Next for each entry by ascending id, then Finish. Its zero value walks from the chain's
// beginning. A Verifier is for a single goroutine, and must not be used after an error.
type Verifier struct {
	from     uint64
	first    uint64 // the entry that begins the chain; 0 until it is found
	last     End    // the entry before the next entry
	begun    bool
	linked   int64
	unlinked int64
	expected Hash
	seen     bool
}

// From returns a Verifier that begins at an entry, and does not check the entries before it. 0 is the beginning.
func From(id uint64) *Verifier { return &Verifier{from: id} }

// Expect makes Finish fail unless an entry with this hash is in the chain. Note the hash of the newest entry outside of
// the database, and pass it later. Then Finish finds that this entry, or an earlier entry, was replaced or cut off,
// even if all later hashes were computed again.
func (v *Verifier) Expect(h Hash) { v.expected = h }

// Begins sets the entry that begins the chain: entries before it have no link. With 0 the first entry with a link
// begins it.
func (v *Verifier) Begins(first uint64) { v.first = first }

// Linked returns how many entries of the chain were found whole.
func (v *Verifier) Linked() int64 { return v.linked }

// Unlinked returns how many entries are older than the chain.
func (v *Verifier) Unlinked() int64 { return v.unlinked }

// Last returns the newest entry that was found whole.
func (v *Verifier) Last() End { return v.last }

// Next checks the next entry. Its error is a *Broken.
func (v *Verifier) Next(e *Entry, l Link) error {
	switch {
	case v.begun && e.ID <= v.last.ID:
		return &Broken{e.ID, fmt.Sprintf("was moved: it comes after entry %d", v.last.ID)}
	case l == Link{} && !v.begun && v.from == 0 && (v.first == 0 || e.ID < v.first):
		v.unlinked++
		return nil
	case l == Link{}:
		return &Broken{e.ID, "was inserted, or its link was deleted: it is not in the chain"}
	}
	if err := v.follows(e, l); err != nil {
		return err
	}
	v.begun, v.last = true, End{e.ID, l.Hash}
	v.linked++
	v.seen = v.seen || l.Hash == v.expected
	return nil
}

func (v *Verifier) follows(e *Entry, l Link) error {
	switch {
	case !v.begun && v.from != 0 && e.ID != v.from:
		return &Broken{v.from, fmt.Sprintf("is missing: the next one is entry %d", e.ID)}
	case e.hash(l.Follows, l.Previous) != l.Hash:
		return &Broken{e.ID, "was changed: it does not have the hash in its link"}
	case !v.begun && v.from != 0:
		return nil
	case l.Follows > v.last.ID:
		return &Broken{l.Follows, fmt.Sprintf("was deleted, or its link: entry %d follows it, and the one before in the "+
			"chain is entry %d", e.ID, v.last.ID)}
	case l.Follows < v.last.ID:
		return &Broken{v.last.ID, fmt.Sprintf("was inserted: entry %d follows entry %d", e.ID, l.Follows)}
	case l.Previous != v.last.Hash:
		return &Broken{v.last.ID, fmt.Sprintf("was changed together with its link: entry %d has another hash of it", e.ID)}
	}
	return nil
}

// Finish compares the newest entry with the open end of the chain. Its error is a *Broken.
func (v *Verifier) Finish(open End) error {
	switch {
	case !v.begun && v.from != 0:
		return &Broken{v.from, "is missing: the log ends before it"}
	case open.ID > v.last.ID:
		return &Broken{open.ID, fmt.Sprintf("was deleted: the log ends at entry %d, and the next one was to follow it",
			v.last.ID)}
	case open.ID < v.last.ID:
		return &Broken{v.last.ID, fmt.Sprintf("was inserted, or the open end was changed: the next one was to follow "+
			"entry %d", open.ID)}
	case open.Hash != v.last.Hash:
		return &Broken{v.last.ID, "was changed together with its link: the open end has another hash of it"}
	case v.expected != Hash{} && !v.seen:
		return &Broken{v.last.ID, fmt.Sprintf("or one before it was replaced, or newer ones were cut off: no entry has the "+
			"hash %v", v.expected)}
	}
	return nil
}
