package events

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
)

func TestBusSlowSubscriberLosesTheOldestOnly(t *testing.T) {
	b := NewBus()
	sub := b.Subscribe(t.Context())
	for i := range 100 {
		b.Publish(Event{Name: fmt.Sprint(i)})
	}
	for i := 36; i < 100; i++ {
		if e := <-sub; e.Name != fmt.Sprint(i) {
			t.Fatalf("got %s, want %d", e.Name, i)
		}
	}
	if len(sub) != 0 {
		t.Fatal("something is left")
	}
}

func TestBusEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBus()
		ctx, cancel := context.WithCancel(t.Context())
		gone, stays := b.Subscribe(ctx), b.Subscribe(t.Context())
		cancel()
		synctest.Wait()
		b.Publish(Event{Name: "after"})
		if e, ok := <-gone; ok {
			t.Fatalf("got %v after the end", e)
		}
		if e := <-stays; e.Name != "after" {
			t.Fatal(e)
		}
	})
}

func TestBusManyAtOnce(t *testing.T) {
	b := NewBus()
	var wg sync.WaitGroup
	for range 8 {
		ctx, cancel := context.WithCancel(t.Context())
		sub := b.Subscribe(ctx)
		wg.Go(func() {
			for range 500 {
				b.Publish(Event{Name: "x"})
			}
		})
		wg.Go(func() {
			for n := 0; n < 50; n++ {
				<-sub
			}
			cancel()
			for range sub { // ends, since the channel is closed
			}
		})
	}
	wg.Wait()
}
