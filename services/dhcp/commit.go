package dhcp

import (
	"context"
	"net/netip"
	"time"
)

// job is addresses whose rows are on their way to the disk, and what to do when
// they are there. The committer writes each row as it is by then: of two changes
// to one address the newer one always is the last on disk, in whichever order
// they were queued.
type job struct {
	addrs []netip.Addr
	done  func(error) // may be nil
}

// addrsOf is the addresses of rows.
func addrsOf(rows []Lease) []netip.Addr {
	var out []netip.Addr
	for _, l := range rows {
		out = append(out, l.Addr)
	}
	return out
}

// maxBatch is how many jobs share one commit.
const maxBatch = 512

// storeWait is how long one commit may take before its answers are given up.
const storeWait = 10 * time.Second

// enqueue gives a job to the committer. When the disk is so slow that the queue
// is full the job is dropped: its client gets no ACK and asks again.
func (s *Server) enqueue(j job) {
	select {
	case s.queue <- j:
	default:
		s.count(func(c *Stats) { c.Lost++ })
	}
}

// batch is jobs of one commit and how it ended.
type batch struct {
	jobs []job
	err  error
}

// commit stores whatever queued up while the last commit ran, in one commit, and
// hands it on to a second goroutine, so that the next commit overlaps the
// answers of this one. It ends, with an empty queue, after stop is closed.
func (s *Server) commit(stop <-chan struct{}) {
	answers := make(chan batch, 4)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		for b := range answers {
			for _, j := range b.jobs {
				if j.done != nil {
					j.done(b.err)
				}
			}
		}
	}()
	for {
		jobs, more := s.take(stop)
		if len(jobs) > 0 {
			answers <- batch{jobs, s.store(jobs)}
		}
		if !more {
			break
		}
	}
	close(answers)
	<-answered
}

// take waits for a job and returns it with all that wait behind it. more is
// false when stop is closed and the queue is empty.
func (s *Server) take(stop <-chan struct{}) (jobs []job, more bool) {
	more = true
	select {
	case j := <-s.queue:
		jobs = append(jobs, j)
	case <-stop:
		more = false
	}
	for len(jobs) < maxBatch {
		select {
		case j := <-s.queue:
			jobs = append(jobs, j)
		default:
			return jobs, more
		}
	}
	return jobs, true
}

// store writes the rows of the jobs as they are now, and deletes those that are
// no more.
func (s *Server) store(jobs []job) error {
	rows, gone := s.current(jobs)
	// Not the context of Run: what was decided is stored, also while it ends.
	ctx, cancel := context.WithTimeout(context.Background(), storeWait)
	defer cancel()
	var err error
	if len(rows) > 0 {
		err = s.leases.Put(ctx, rows)
	}
	if err == nil && len(gone) > 0 {
		err = s.leases.Delete(ctx, gone)
	}
	if err != nil {
		if s.once("store", time.Now()) {
			s.log.Error("leases not stored, no ACK sent", "leases", len(rows), "err", err)
			s.tell(Event{Kind: NotStored})
		}
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range rows {
		if sv := s.holder(l.Addr); sv != nil {
			sv.pool.Stored(l)
		}
	}
	return nil
}

// current looks up the rows of the jobs, each address once; gone are those
// without a row.
func (s *Server) current(jobs []job) (rows []Lease, gone []netip.Addr) {
	seen := map[netip.Addr]bool{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range jobs {
		for _, a := range j.addrs {
			if seen[a] {
				continue
			}
			seen[a] = true
			l, ok := s.others[a]
			if sv := s.holder(a); sv != nil {
				l, ok = sv.pool.rows[a]
			}
			if ok {
				rows = append(rows, l)
			} else {
				gone = append(gone, a)
			}
		}
	}
	return rows, gone
}

// holder is the scope whose network the address lies in, or nil. The caller
// holds mu.
func (s *Server) holder(a netip.Addr) *served {
	for _, sv := range s.served {
		if sv.scope.Net.Contains(a) {
			return sv
		}
	}
	return nil
}
