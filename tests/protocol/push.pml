/* A push of versions 2 and 3 to two engine ranks that serve version 1, in the shortest words: scripts/check_protocol.sh
 * has spin go through all of it. Any answer may be late, the trainer may die at any step, a lease may end at any time.
 *
 *   here              in the code
 *   Trainer           sync::PushProtocol (sync/session/push_protocol.h), carried out by Session::Impl::update_engines
 *   tell              PushProtocol::next and done; giving up is a DeadlineExceeded
 *   Engine, end_push  engine::PushState (engine_adapter/receiver/push_state.h), acted on by VersionUpdate
 *   gone              Receiver::drop_trainer: the connection ended, or the lease
 *   weights 0         parts of two versions
 * tests/unit/sync/protocol explores the code itself, with modes, repeats and a second trainer.
 *
 * BREAK leaves a rule out, which must be found: 1, that no rank is resumed before all have committed; 2, that a committed
 * version is withheld when its trainer is gone; 3, that a push ends with its trainer; 4, that a mixture is refused.
 */
#ifndef BREAK
#define BREAK 0
#endif
#define N 2

mtype = { PAUSE, BEGIN, LOAD, COMMIT, RESUME, ABORT }

typedef Rank {
  byte weights = 1;  /* the version that they are; 0: a mixture */
  byte label = 1;    /* the version that samples carry */
  byte next;
  byte staged;       /* mode alias: what commit turns to; else weights are written in place */
  bool held, open, dirty, undecided, refuses
}
Rank rank[N];
bool gone[N];             /* this rank is no longer connected to the trainer */
bool trainer_over;
bool alias;
chan requests[N] = [2] of { mtype, byte, byte };  /* operation, version, number */
chan answers[N] = [8] of { byte, bool };          /* number, done */

#define generates(e) (!rank[e].held && !rank[e].open && !rank[e].refuses)
#define whole(e)     (!generates(e) || rank[e].weights == rank[e].label)
#define alike        (!generates(0) || !generates(1) || rank[0].label == rank[1].label)

inline end_push(e) {
  if
  :: rank[e].open && rank[e].dirty && BREAK != 4 -> rank[e].refuses = true
  :: else ->
     if
     :: rank[e].undecided && BREAK != 2 -> rank[e].refuses = true
     :: else
     fi
  fi;
  rank[e].held = false; rank[e].open = false; rank[e].dirty = false; rank[e].undecided = false
}

inline carry_out(e, op, version, done) {
  done = true;
  if
  :: op == PAUSE && !rank[e].open -> rank[e].held = true
  :: op == BEGIN && !rank[e].open ->
     rank[e].open = true; rank[e].dirty = false; rank[e].next = version; rank[e].staged = 0
  :: op == LOAD && rank[e].open && alias -> rank[e].staged = version
  :: op == LOAD && rank[e].open && !alias && !rank[e].dirty -> rank[e].dirty = true; rank[e].weights = 0
  :: op == LOAD && rank[e].open && rank[e].dirty -> rank[e].weights = version
  :: op == COMMIT && rank[e].open && rank[e].next == version &&
     ((alias && rank[e].staged == version) || (!alias && rank[e].weights == version)) ->
     rank[e].weights = version; rank[e].label = version; rank[e].open = false; rank[e].dirty = false; rank[e].refuses = false;
     rank[e].undecided = true
  :: op == RESUME && !rank[e].open -> rank[e].held = false; rank[e].undecided = false
  :: op == ABORT -> end_push(e)
  :: else -> done = false;
     if
     :: op == LOAD || op == COMMIT -> end_push(e)
     :: else
     fi
  fi
}

proctype Engine(byte e) {
  mtype op; byte version, number; bool done;
end:
  do
  :: atomic { !gone[e] && nempty(requests[e]) -> requests[e] ? op, version, number;
       carry_out(e, op, version, done);
       if
       :: nfull(answers[e]) -> answers[e] ! number, done
       :: full(answers[e])
       fi }
  :: atomic { !gone[e] && trainer_over && empty(requests[e]) && BREAK != 3 -> gone[e] = true; end_push(e) }
  :: atomic { !gone[e] && (rank[e].held || rank[e].open) && BREAK != 3 -> gone[e] = true; end_push(e) }  /* the lease */
  od
}

/* Tells one engine rank something, and hears how it went or waits no longer. */
inline tell(e, op, version) {
  number++;
  if
  :: gone[e] -> ok = false
  :: full(requests[e]) -> ok = false
  :: atomic { !gone[e] && nfull(requests[e]) -> requests[e] ! op, version, number };
     do
     :: atomic { answers[e] ? heard, ok ->
          if
          :: heard == number -> break
          :: else
          fi }
     :: ok = false -> break
     od
  fi;
  if
  :: dies && number >= last -> goto over
  :: else
  fi
}

proctype Trainer() {
  byte version = 2, number, heard, e, told, last;
  bool ok, failed, dies;
  select(last : 1 .. 12);
  if
  :: dies = true
  :: dies = false
  fi;
  do
  :: version <= 3 ->
     failed = false; told = 0;
     for (e : 0 .. N - 1) {
       if
       :: !failed -> told = e + 1; tell(e, PAUSE, version); failed = !ok
       :: else
       fi
     }
     for (e : 0 .. N - 1) {
       if
       :: !failed -> tell(e, BEGIN, version); failed = !ok
       :: else
       fi
     }
     for (e : 0 .. N - 1) {
       if
       :: !failed -> tell(e, LOAD, version); failed = !ok
       :: else
       fi;
       if
       :: !failed -> tell(e, LOAD, version); failed = !ok
       :: else
       fi
     }
     for (e : 0 .. N - 1) {
       if
       :: !failed -> tell(e, COMMIT, version); failed = !ok
       :: else
       fi;
       if
       :: !failed && BREAK == 1 -> tell(e, RESUME, version)
       :: else
       fi
     }
     if
     :: failed ->
        for (e : 0 .. N - 1) {
          if
          :: e < told -> tell(e, ABORT, version)
          :: else
          fi
        }
     :: else ->
        for (e : 0 .. N - 1) { tell(e, RESUME, version) }
     fi;
     version++
  :: else -> break
  od;
over:
  trainer_over = true
}

init {
  if
  :: alias = true
  :: alias = false
  fi;
  atomic { run Engine(0); run Engine(1); run Trainer() }
}

ltl whole_versions { [] (whole(0) && whole(1)) }
ltl one_version { [] alike }
ltl nobody_waits { [] (trainer_over -> <> (!rank[0].held && !rank[0].open && !rank[1].held && !rank[1].open)) }
