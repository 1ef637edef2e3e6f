"""Push one job of each kind, and look at the outcomes."""

from jobs import app, remind, remove, welcome

with app:
    greeted = welcome.push_sync(7)
    reminded = remind.options(delay="100ms").push_sync(user_id=7)
    removed = remove.push_sync(7)

    print(greeted.result_sync(timeout=30))
    print(reminded.result_sync(timeout=30))
    print(removed.id, "is", removed.wait_sync(timeout=30))
    print("Now try: stoker job show", removed.id)
