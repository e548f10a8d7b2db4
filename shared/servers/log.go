package servers

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// logTailBytes is how much of a log goes into an error.
const logTailBytes = 4 << 10

// serverLog is where a server's output goes: a file, which the child writes by itself, or the caller's writer.
type serverLog struct {
	file *os.File   // nil when the caller gave a writer
	last *lastBytes // nil when there is a file
	tee  io.Writer
}

func openLog(path string, to io.Writer) (*serverLog, error) {
	if to != nil {
		last := &lastBytes{}
		return &serverLog{last: last, tee: io.MultiWriter(last, to)}, nil
	}
	// Append: several runs of the server write it one after the other.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open server log: %w", err)
	}
	return &serverLog{file: f}, nil
}

// writer is the same value each time, so that stdout and stderr share one pipe, in order.
func (l *serverLog) writer() io.Writer {
	if l.file != nil {
		return l.file
	}
	return l.tee
}

// tail returns the end of what the server has printed.
func (l *serverLog) tail() string {
	if l.file == nil {
		return l.last.String()
	}
	info, err := l.file.Stat()
	if err != nil {
		return "(log unreadable: " + err.Error() + ")"
	}
	end := make([]byte, min(info.Size(), logTailBytes))
	n, err := l.file.ReadAt(end, info.Size()-int64(len(end)))
	if err != nil && !errors.Is(err, io.EOF) {
		return "(log unreadable: " + err.Error() + ")"
	}
	return string(end[:n])
}

func (l *serverLog) close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// lastBytes remembers the last logTailBytes written to it.
type lastBytes struct {
	mu    sync.Mutex
	bytes []byte
}

func (b *lastBytes) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes = append(b.bytes, p...)
	if over := len(b.bytes) - logTailBytes; over > 0 {
		b.bytes = append(b.bytes[:0], b.bytes[over:]...)
	}
	return len(p), nil
}

func (b *lastBytes) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.bytes)
}
