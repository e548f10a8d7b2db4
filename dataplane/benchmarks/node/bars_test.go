package main

import (
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A bar is judged by the median of its rounds' ratios, and one that was not measured does not pass.
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

// An outage may be as slow as the healthy run, or as what does not count as a spike.
func TestOutageBars(t *testing.T) {
	micros := func(v int64) *hdrhistogram.Histogram {
		h := hdrhistogram.New(1, latencyMicrosMax, 3)
		if err := h.RecordValue(v); err != nil {
			t.Fatal(err)
		}
		return h
	}
	for _, step := range []struct {
		healthy, killed, back int64
		wantKilled, wantBack  string
	}{
		{1_000, 4_000, 4_900, "pass", "pass"},
		{1_000, 50_000, 4_000, "**miss**", "pass"},
		{30_000, 25_000, 40_000, "pass", "**miss**"},
	} {
		a := outage{latency: []*hdrhistogram.Histogram{micros(step.healthy), micros(step.killed), micros(step.back)}}
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
