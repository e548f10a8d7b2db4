package tuning

import (
	"crypto/sha256"
	"encoding/hex"
	"hash/fnv"
)

// TrialShares is the number of shares into which nodes are drawn: see TrialShare.
const TrialShares = 1 << 32

// TrialShare draws a node into one of TrialShares, by its id alone. So the control plane and the nodes agree on which
// nodes of a region try a tuning: the nodes whose share is below a bound. A node that tries it continues when the bound
// is raised.
//
// It is FNV-1a of 64 bits, mixed as in splitmix64, so that ids that differ in their last byte are spread evenly.
func TrialShare(nodeID string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(nodeID)) // never fails
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return int64((x ^ x>>31) >> 32)
}

// Hash identifies a document's content, in any spelling: 16 hexadecimal digits, of SHA-256 of Document. Nodes that
// report the same hash run the same tuning. It is empty if t is not valid.
func (t Tuning) Hash() string {
	document, err := t.Document()
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(document)
	return hex.EncodeToString(sum[:8])
}
