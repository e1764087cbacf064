# %% [markdown]
# Sessions of reviewers with SQL: who wrote how many reviews in one sitting?
#
# Reads a CSV of reviews (`reviewerId,vendorId,rating,date`), converts it to segments, and answers two questions. As a
# notebook: cells begin at `# %%`. As a script: `python docs/examples/spark_sessions.py reviews.csv reviews/`.

# %%
from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import esformat.spark


# %% Convert reviews to segments: one file per range of reviewers, with an index on the rating
def load_reviews(spark: Any, csv: str, folder: str) -> None:
    reviews = (
        spark.read.option("header", True)
        .schema("reviewerId string, vendorId string, rating string, date string")
        .csv(csv)
        .selectExpr("reviewerId", "vendorId", "rating", "to_timestamp(date, 'yyyy-MM-dd HH:mm') AS at")
    )
    esformat.spark.write(
        reviews, folder, space="reviewerId", grouping="vendorId", timestamp="at", indexes=["rating"], mode="overwrite"
    )
    spark.read.format("esdb").load(folder).createOrReplaceTempView("reviews")


# %% Sessions: reviews of one reviewer that follow each other within half an hour
SESSIONS = """
WITH steps AS (
    SELECT space AS reviewer, timestamp, rating,
           timestamp > lag(timestamp) OVER history + INTERVAL 30 MINUTES AS begins
    FROM reviews
    WINDOW history AS (PARTITION BY space ORDER BY timestamp, grouping)
), numbered AS (
    SELECT *, sum(CASE WHEN begins THEN 1 ELSE 0 END) OVER (
        PARTITION BY reviewer ORDER BY timestamp ROWS UNBOUNDED PRECEDING) AS session
    FROM steps
)
SELECT reviewer, session, count(*) AS reviews, min(timestamp) AS started, max(timestamp) AS ended
FROM numbered GROUP BY reviewer, session
"""

# %% The lengths of sessions
LENGTHS = "SELECT reviews, count(*) AS sessions FROM sessions GROUP BY reviews ORDER BY reviews"

# %% A join with Parquet: vendors by the reviews of their hardest judges. The filter on the index is pushed down.
JUDGES = """
SELECT v.name, count(*) AS bad_reviews
FROM reviews r JOIN vendors v ON v.vendorId = r.grouping
WHERE r.rating = '0'
GROUP BY v.name ORDER BY bad_reviews DESC, v.name LIMIT 5
"""


# %%
def main(spark: Any, csv: str, folder: str) -> dict[str, list[Any]]:
    """Answer both questions. Leaves `vendors.parquet` next to the folder of segments."""
    load_reviews(spark, csv, folder)
    vendors = str(Path(folder).with_name("vendors.parquet"))
    named = spark.sql("SELECT DISTINCT grouping AS vendorId, concat('vendor ', grouping) AS name FROM reviews")
    named.write.mode("overwrite").parquet(vendors)
    spark.read.parquet(vendors).createOrReplaceTempView("vendors")
    spark.sql(SESSIONS).createOrReplaceTempView("sessions")
    return {"lengths": spark.sql(LENGTHS).collect(), "judges": spark.sql(JUDGES).collect()}


if __name__ == "__main__":
    for title, rows in main(esformat.spark.start_session("sessions"), *sys.argv[1:3]).items():
        print(title, *rows[:10], sep="\n  ")  # noqa: T201 - a script that prints its answers
