"""What tests made of many small checks share."""
import traceback

CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def fails(error, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except error:
        return
    raise AssertionError(f"{call.__name__}{args}: {error.__name__} expected")


def run(title, *args, only=(), after=lambda: None):
    """Call every check, `after` behind each one; the exit code says whether all passed."""
    chosen = [f for f in CHECKS if not only or f.__name__ in only]
    failed = 0
    for function in chosen:
        try:
            function(*args)
            print(f"ok: {function.__name__}", flush=True)
        except (Exception, SystemExit):
            failed += 1
            print(f"FAILED: {function.__name__}\n{traceback.format_exc()[-2500:]}", flush=True)
        after()
    print(f"{title}: {len(chosen) - failed} passed, {failed} failed", flush=True)
    return 1 if failed else 0
