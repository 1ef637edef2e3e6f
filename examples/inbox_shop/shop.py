"""Orders in PostgreSQL, and a mail for each one that is committed: the mail's job is a row of the same transaction.

export DATABASE=postgresql://shop@127.0.0.1/shop
stoker inbox init $DATABASE
stoker inbox run --from $DATABASE       # reads the rows, in one terminal
stoker worker shop:app                  # sends the mails, in another one
python shop.py
"""

import os

import psycopg

import stoker

app = stoker.App()  # the queue at STOKER_URL, or the directory stoker.db
ORDERS = "CREATE TABLE IF NOT EXISTS orders (id serial PRIMARY KEY, customer text, cents int CHECK (cents > 0))"


@app.job(queue="mail", max_attempts=5)
def thank(customer: str, order: int) -> str:
    return f"thank you, {customer}, for order {order}"


def place(connection: psycopg.Connection, customer: str, *cents: int) -> list[stoker.InboxJob[str]]:
    """Place orders, with a mail for each: all of them or none."""
    with connection.transaction():
        mails = []
        for amount in cents:
            row = connection.execute(
                "INSERT INTO orders (customer, cents) VALUES (%s, %s) RETURNING id", (customer, amount)
            ).fetchone()
            assert row is not None
            mails.append(thank.push_in_sync(connection, customer, order=row[0]))
        return mails


def main() -> None:
    with psycopg.connect(os.environ["DATABASE"], autocommit=True) as connection:
        connection.execute(ORDERS)
        for mail in place(connection, "Ada", 1_999, 500):
            print(mail.result_sync(timeout="60s"))
        try:
            place(connection, "Bob", 700, -1)
        except psycopg.errors.CheckViolation:
            print("Bob's second order was refused, so he gets no mail for the first one either")
    with stoker.connect() as queue:
        print("mails:", queue.get_stats("mail").totals.pushed)


if __name__ == "__main__":
    main()
