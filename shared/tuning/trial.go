package tuning

import (
	"crypto/sha256"
	"encoding/hex"
	"hash/fnv"
)

// TrialShares is how many shares a region has that nodes are drawn into; see TrialShare.
const TrialShares = 1 << 32

// TrialShare draws a node into one of TrialShares, by its id alone, so that control plane and nodes agree on which
// nodes of a region try a tuning: those below a bound. A node that tries it goes on when the bound is raised.
//
// It is FNV-1a of 64 bits, mixed as splitmix64 does so that ids that differ in their last byte are spread evenly.
func TrialShare(nodeID string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(nodeID)) // never fails
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return int64((x ^ x>>31) >> 32)
}

// Hash identifies what a document says, however it is written: 16 hexadecimal digits, of SHA-256 of Document. Nodes
// that report the same one run the same tuning. It is empty if t is not valid.
func (t Tuning) Hash() string {
	document, err := t.Document()
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(document)
	return hex.EncodeToString(sum[:8])
}
