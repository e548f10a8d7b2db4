package relay

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"sync"

	"github.com/weirhq/weir/dataplane/store"
)

// deflateMin is the shortest payload that is worth compressing, and the shortest part that is worth Huffman codes of
// its own.
const deflateMin = 256

// A compressor takes some 100 KB, an expander some 10 KB.
var (
	deflaters = sync.Pool{New: func() any {
		w, _ := flate.NewWriter(nil, flate.BestSpeed) // the level is valid
		return w
	}}
	inflaters = sync.Pool{New: func() any { return flate.NewReader(nil) }}
)

// deflate compresses the parts of a body into a payload. Each part has its own Huffman codes, because texts, lengths
// and gaps have little in common.
func deflate(parts ...[]byte) []byte {
	var b bytes.Buffer
	b.WriteByte(versionDeflated)
	w := deflaters.Get().(*flate.Writer)
	defer deflaters.Put(w)
	w.Reset(&b)
	for _, part := range parts { // writes to a bytes.Buffer do not fail
		_, _ = w.Write(part)
		if len(part) >= deflateMin {
			_ = w.Flush()
		}
	}
	_ = w.Close()
	return b.Bytes()
}

// inflate is the inverse of deflate, without the version byte. The result is valid until into changes.
func inflate(into *bytes.Buffer, packed []byte) ([]byte, error) {
	r := inflaters.Get().(io.ReadCloser)
	defer inflaters.Put(r)
	source := bytes.NewReader(packed)
	if err := r.(flate.Resetter).Reset(source, nil); err != nil {
		return nil, fmt.Errorf("%w: %w", errPayload, err)
	}
	into.Reset()
	_, err := into.ReadFrom(io.LimitReader(r, store.FeedBytesMax))
	body := into.Bytes()
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errPayload, err)
	case len(body) == store.FeedBytesMax:
		return nil, fmt.Errorf("%w: inflates to %d bytes or more", errPayload, store.FeedBytesMax)
	case source.Len() > 0:
		return nil, fmt.Errorf("%w: %d bytes after its end", errPayload, source.Len())
	}
	return body, nil
}
