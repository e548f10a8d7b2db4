package main

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A bar is judged by the median of its rounds' ratios. A bar without a measurement does not pass.
func TestBars(t *testing.T) {
	rounds := func(cpu ...float64) (all []figures) {
		for _, micros := range cpu {
			all = append(all, figures{cpuMicros: micros, perSecond: 1e6 / micros})
		}
		return all
	}
	r := results{
		"grpc":       rounds(10, 20, 90), // in the third round the machine did something else
		gubernator:   rounds(50, 50, 100),
		"rls":        rounds(30),
		ratelimit:    rounds(60, 60, 60),
		"grpc batch": nil,
	}
	want := map[string]string{
		"CPU, grpc / gubernator":                                 "pass",     // 0.2, 0.4, 0.9
		"calls/s, grpc / gubernator":                             "pass",     // 5, 2.5, 1.1
		"CPU, rls / ratelimit":                                   "**miss**", // 0.5
		"calls/s, rls / ratelimit":                               "pass",     // 2
		"CPU, json / bare net/http":                              "not measured",
		"decisions/s, grpc batch of 10 / gubernator batch of 10": "not measured",
	}
	for _, b := range r.bars(options{}) {
		if verdict, ok := want[b.text]; ok && b.verdict() != verdict {
			t.Errorf("%s: %v %s: %s, want %s", b.text, b.got, b.bound(), b.verdict(), verdict)
		}
		delete(want, b.text)
	}
	for text := range want {
		t.Errorf("no bar is called %q", text)
	}
}

// An outage may have as many slow calls as the healthy run, plus one call in a thousand.
func TestOutageBars(t *testing.T) {
	slow := func(n int64) *hdrhistogram.Histogram {
		h := hdrhistogram.New(1, latencyMicrosMax, 3)
		if err := errors.Join(h.RecordValues(1_000, 10_000-n), h.RecordValues(50_000, n)); err != nil {
			t.Fatal(err)
		}
		return h
	}
	for _, step := range []struct {
		healthy, killed, back int64 // slow calls, of ten thousand
		wantKilled, wantBack  string
	}{
		{0, 0, 9, "pass", "pass"},
		{0, 11, 0, "**miss**", "pass"},
		{100, 20, 105, "pass", "pass"},
		{100, 100, 200, "pass", "**miss**"},
		{101, 0, 0, "not measured", "not measured"}, // the machine did not keep up without an outage
	} {
		a := outage{latency: []*hdrhistogram.Histogram{slow(step.healthy), slow(step.killed), slow(step.back)}}
		bars := a.bars()
		if killed, back := bars[0].verdict(), bars[1].verdict(); killed != step.wantKilled || back != step.wantBack {
			t.Errorf("%+v: killed %s, back %s", step, killed, back)
		}
	}
	for _, b := range new(outage).bars() {
		if b.verdict() != "not measured" {
			t.Errorf("%s: %s without a measurement", b.text, b.verdict())
		}
	}
}

// The rate that a node keeps up with is found below the rate of a closed loop, at which open loops are late.
func TestSustainedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turn sync.Mutex
		n := 0
		// A call at a time, 10 ms each in the closed loop and in the first open loop, 1 ms from then on.
		server := func(context.Context) error {
			turn.Lock()
			defer turn.Unlock()
			if n++; n <= 200 {
				time.Sleep(10 * time.Millisecond)
			} else {
				time.Sleep(time.Millisecond)
			}
			return nil
		}
		rate, err := sustainedRate(t.Context(), []call{server}, time.Second)
		if err != nil || rate < 79 || rate > 81 {
			t.Errorf("%v calls a second, error %v; want 0.8 of 100", rate, err)
		}
	})
}
