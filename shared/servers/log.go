package servers

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// logTailBytes bounds the part of a log that an error contains.
const logTailBytes = 4 << 10

// openLog opens the file for a server's output. Consecutive runs of the server append to it.
func openLog(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open server log: %w", err)
	}
	return f, nil
}

// logTail returns the end of the server's output.
func (p *Process) logTail() string {
	info, err := p.log.Stat()
	if err != nil {
		return "(log unreadable: " + err.Error() + ")"
	}
	end := make([]byte, min(info.Size(), logTailBytes))
	n, err := p.log.ReadAt(end, info.Size()-int64(len(end)))
	if err != nil && !errors.Is(err, io.EOF) {
		return "(log unreadable: " + err.Error() + ")"
	}
	return string(end[:n])
}
