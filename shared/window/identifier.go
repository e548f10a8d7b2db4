package window

import (
	"crypto/sha256"
	"encoding/hex"
)

// BoundIdentifier returns the identifier under which a name of any bytes is counted: the name itself if it has
// 1 to IdentifierBytesMax bytes, and otherwise "sha256:" and the name's SHA-256 in hexadecimal. Use it for names that a
// limited caller can choose: an error about such a name would let the caller pass wherever errors do.
//
// It returns a name that is its own result unchanged, so it may be applied more than once.
func BoundIdentifier(name string) string {
	if uint(len(name)-1) < IdentifierBytesMax {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "sha256:" + hex.EncodeToString(sum[:])
}
