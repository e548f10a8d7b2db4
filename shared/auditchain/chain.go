package auditchain

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// Hash is the hash of an entry. The zero Hash stands for no entry.
type Hash [sha256.Size]byte

// String returns the hash in 64 hexadecimal digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// ParseHash reads the text that String prints.
func ParseHash(text string) (h Hash, err error) {
	if len(text) == 2*len(h) {
		_, err = hex.Decode(h[:], []byte(text))
	}
	if err != nil || len(text) != 2*len(h) {
		return Hash{}, fmt.Errorf("hash is %.80q, want %d hexadecimal digits", text, 2*len(h))
	}
	return h, nil
}

// Entry is a row of the audit log, with every column.
type Entry struct {
	ID, AtMs                                               uint64
	Actor, Action, Subject, Reason, Before, After, WriteID string
}

// End is the open end of a chain: the entry that the next entry will follow. The zero End is the end of a chain that
// has not begun.
type End struct {
	ID   uint64
	Hash Hash
}

// Link binds an entry to the entry before. The zero Link marks an entry outside the chain.
type Link struct {
	Follows  uint64 // the id of the entry before; 0: this entry begins the chain
	Previous Hash   // its hash
	Hash     Hash   // of this entry
}

// Append links an entry to the end of a chain.
func (e End) Append(entry *Entry) Link {
	return Link{Follows: e.ID, Previous: e.Hash, Hash: entry.hash(e.ID, e.Hash)}
}

func (e *Entry) hash(follows uint64, previous Hash) (h Hash) {
	b := append([]byte("weir audit entry 1\n"), previous[:]...)
	for _, n := range []uint64{follows, e.ID, e.AtMs} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	for _, text := range []string{e.Actor, e.Action, e.Subject, e.Reason, e.Before, e.After, e.WriteID} {
		b = binary.BigEndian.AppendUint64(b, uint64(len(text)))
		b = append(b, text...)
	}
	return sha256.Sum256(b)
}
