package servers

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// logTailBytes is how much of a log goes into an error.
const logTailBytes = 4 << 10

// openLog opens the file that a server prints to. Several runs of the server write it one after the other.
func openLog(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open server log: %w", err)
	}
	return f, nil
}

// logTail returns the end of what the server has printed.
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
