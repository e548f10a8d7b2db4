package store

// Digest is what a node tells of the keys it sees: which ones at all, or the counts of
// some (see Digest.Counts), in a form that only those who make and ask it can read.
type Digest struct {
	Region, Node string // 1 to 48 and 1 to 64 bytes; PublishDigest takes its own region's word
	Keys         int    // how many keys or counts are in Filter
	Filter       []byte // at most DigestBytesMax
	MadeAtMs     int64  // Unix milliseconds by the node's clock
	ExpiresAtMs  int64  // Unix milliseconds by the node's clock
}

// DigestBytesMax is how long a digest's filter may be.
const DigestBytesMax = 1 << 20
