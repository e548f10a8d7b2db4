package relay

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"sync"

	"github.com/weirhq/weir/dataplane/store"
)

// deflateMin is how long a payload is at least that may gain by compression, and a part of it by codes of its own.
const deflateMin = 256

// A compressor holds some hundred kilobytes, an expander some ten.
var (
	deflaters = sync.Pool{New: func() any {
		w, _ := flate.NewWriter(nil, flate.BestSpeed) // the level is valid
		return w
	}}
	inflaters = sync.Pool{New: func() any { return flate.NewReader(nil) }}
)

// deflate makes a payload of the parts of a body. Each part has Huffman codes of its own: texts, lengths and gaps have
// little in common.
func deflate(parts ...[]byte) []byte {
	var b bytes.Buffer
	b.WriteByte(versionDeflated)
	w := deflaters.Get().(*flate.Writer)
	defer deflaters.Put(w)
	w.Reset(&b)
	for _, part := range parts { // a buffer takes everything
		_, _ = w.Write(part)
		if len(part) >= deflateMin {
			_ = w.Flush()
		}
	}
	_ = w.Close()
	return b.Bytes()
}

// inflate is the inverse, of what follows the version. It uses the memory of into.
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
		return nil, fmt.Errorf("%w: inflated it has %d bytes or more", errPayload, store.FeedBytesMax)
	case source.Len() > 0:
		return nil, fmt.Errorf("%w: %d bytes behind its end", errPayload, source.Len())
	}
	return body, nil
}
