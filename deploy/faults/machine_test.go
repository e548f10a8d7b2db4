package faults

import (
	"bufio"
	"net"
	"testing"
	"time"
)

// watchMachine measures how late a goroutine of this process is that only looks at the time, and how long Redis takes
// for a PING over a connection of its own: the machine's part of everything that takes time here, none of it ours. It
// ends with the test.
func watchMachine(t *testing.T, redis string) *lateness {
	l := &lateness{}
	stop, looked, pinged := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() { defer close(looked); l.look(stop) }()
	go func() { defer close(pinged); l.ping(stop, redis) }()
	t.Cleanup(func() { close(stop); <-looked; <-pinged })
	return l
}

const lookEvery = 10 * time.Millisecond

func (l *lateness) look(stop <-chan struct{}) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			now := time.Now()
			l.add(now, now.Sub(last)-lookEvery)
			last = now
		}
	}
}

func (l *lateness) ping(stop <-chan struct{}, redis string) {
	var conn net.Conn
	defer func() {
		if conn != nil {
			_ = conn.Close()
		}
	}()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		if conn == nil {
			var err error
			if conn, err = net.Dial("tcp", redis); err != nil {
				conn = nil
				continue
			}
		}
		began := time.Now()
		_ = conn.SetDeadline(began.Add(10 * time.Second))
		_, err := conn.Write([]byte("PING\r\n"))
		if err == nil {
			_, err = bufio.NewReader(conn).ReadString('\n')
		}
		if err != nil { // it is killed at times
			_ = conn.Close()
			conn = nil
			continue
		}
		l.add(time.Now(), time.Since(began))
	}
}
