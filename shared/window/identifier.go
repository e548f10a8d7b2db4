package window

import (
	"crypto/sha256"
	"encoding/hex"
)

// BoundIdentifier returns the identifier under which a name is counted: the name itself if it has 1
// to IdentifierBytesMax bytes, and otherwise "sha256:" and the name's SHA-256 in hexadecimal. Use
// it for names that a limited caller can choose. If such a name caused an error instead, the caller
// could use it to pass wherever errors let requests pass.
//
// A name that BoundIdentifier has returned stays the same when it is passed in again.
func BoundIdentifier(name string) string {
	if uint(len(name)-1) < IdentifierBytesMax {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "sha256:" + hex.EncodeToString(sum[:])
}
