"""Where the files of tables are stored: a local directory or an S3-compatible object store.

Two adapters implement the `TableFiles` port of `catalog`: `local.LocalTableFiles` and `s3.S3TableFiles`.
Through it the catalog reads manifests, gives a staged manifest its final name if nobody else has it
(`copy_if_absent`), removes dropped tables, and vends storage options to clients.

Around the two adapters:

- `warehouse`: what only the server needs; no operation may leave the warehouse or remove part of another
  table; Arrow file systems for checkpoints and reports of tasks
- `s3_client`: boto3 clients, their errors, and the AWS settings of every client library
- `vending`: credentials for clients, if possible restricted to one table
- `signing`: remote signing of S3 requests for Iceberg clients

Table data does not pass through here: Lance and Arrow read and write it directly.

Storage may import `catalog` and `errors`, and nothing that knows Lance, Spark or SQL. `boto3` is optional and
imported only for `s3://` warehouses.
"""
